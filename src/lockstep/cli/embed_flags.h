// The flags of `lockstep embed`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/row_flags.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/tasks/embed.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

struct EmbedFlags {
  RunFlags run;
  RowFlags rows;
  EmbeddingOptions given;  // what a flag says as it is
  std::string pooling = "mean", stage = "hidden", format = "jsonl";

  EmbeddingOptions options(const Env& env) const;    // throws UserError(kUsage)
  EmbeddingOptions embedding(const Env& env) const;  // without the model
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<EmbedFlags> parse_embed_flags(const std::vector<std::string>& args);

/// Of how rows become vectors alone (pooling, reading of rows): for a model that is open.
void add_embedding_flags(CLI::App& app, EmbedFlags& flags);
void check_embedding_flags(const CLI::App& app, const EmbedFlags& flags);  // when they have been parsed

}  // namespace lockstep
