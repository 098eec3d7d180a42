// The flags of `lockstep embed`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/batch_search.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/infer/embedder.h"

namespace lockstep {

struct EmbedFlags {
  RunFlags run;
  RowFlags rows;
  std::vector<std::string> dataset;
  std::filesystem::path output;
  BatchFlags batch;
  std::string pooling = "mean", stage = "hidden", format = "jsonl";
  bool normalize = false, overwrite = false;

  EmbedOptions options() const;
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<EmbedFlags> parse_embed_flags(const std::vector<std::string>& args);

}  // namespace lockstep
