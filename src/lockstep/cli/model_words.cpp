#include "lockstep/cli/model_words.h"

#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/embed_flags.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/infer_flags.h"

namespace lockstep {
namespace {

/// --help, which would be printed, is no word of a program.
void parse(CLI::App& app, const std::vector<std::string>& words) {
  app.set_help_flag();
  (void)parse_flags(app, words);
}

}  // namespace

RunOptions parse_model_words(const std::vector<std::string>& words, const Env& env) {
  InferFlags flags;
  CLI::App app("a model that stays open", "lockstep infer");
  add_run_flags(app, flags.run);
  app.add_option("--merge_lora", flags.given.run.merge_adapter,
                 "put the adapter into the weights while they are loaded");
  parse(app, words);
  RunOptions out = flags.run.options(env);
  out.merge_adapter = flags.given.run.merge_adapter;
  return out;
}

AnswerFileOptions parse_answering_words(const std::vector<std::string>& words, const Env& env) {
  InferFlags flags;
  CLI::App app("how rows are answered", "lockstep infer");
  add_answering_flags(app, flags);
  parse(app, words);
  return flags.answering(env);
}

EmbeddingOptions parse_embedding_words(const std::vector<std::string>& words, const Env& env) {
  EmbedFlags flags;
  CLI::App app("how rows become vectors", "lockstep embed");
  add_embedding_flags(app, flags);
  parse(app, words);
  check_embedding_flags(app, flags);
  return flags.embedding(env);
}

}  // namespace lockstep
