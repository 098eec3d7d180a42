// The flags of `lockstep embed`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/row_flags.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/tasks/embed.h"

namespace lockstep {

struct EmbedFlags {
  RunFlags run;
  RowFlags rows;
  EmbeddingOptions given;  // what a flag says as it is
  std::string pooling = "mean", stage = "hidden", format = "jsonl";

  EmbeddingOptions options(const Env& env) const;  // throws UserError(kUsage)
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<EmbedFlags> parse_embed_flags(const std::vector<std::string>& args);

}  // namespace lockstep
