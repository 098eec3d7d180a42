#include "lockstep/cli/model_words.h"

#include <utility>

#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/embed_flags.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/infer_flags.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

/// Whether `lockstep infer` or `lockstep embed` has it, in whatever place.
bool is_ours(const std::string& name) {
  InferFlags infer;
  EmbedFlags embed;
  CLI::App answering("", ""), embedding("", "");
  add_run_flags(answering, infer.run);
  add_answering_flags(answering, infer);
  add_embedding_flags(embedding, embed);
  const std::string flag = "--" + name;
  return answering.get_option_no_throw(flag) != nullptr || embedding.get_option_no_throw(flag) != nullptr;
}

/// --help, which would be printed, is no word of a program.
void parse(CLI::App& app, const std::vector<std::string>& words, std::vector<std::string>& notices) {
  app.set_help_flag();
  const Translation translation = translate("infer", words, is_ours);
  (void)parse_flags(app, translation.words);
  for (auto& text : translation.notices()) notices.push_back(std::move(text));
}

}  // namespace

RunOptions parse_model_words(const std::vector<std::string>& words, const Env& env, std::vector<std::string>& notices) {
  InferFlags flags;
  CLI::App app("a model that stays open", "lockstep infer");
  add_run_flags(app, flags.run);
  app.add_option("--merge_lora", flags.given.run.merge_adapter,
                 "put the adapter into the weights while they are loaded");
  parse(app, words, notices);
  RunOptions out = flags.run.options(env);
  out.merge_adapter = flags.given.run.merge_adapter;
  return out;
}

AnswerFileOptions parse_answering_words(const std::vector<std::string>& words, const Env& env,
                                        std::vector<std::string>& notices) {
  InferFlags flags;
  CLI::App app("how rows are answered", "lockstep infer");
  add_answering_flags(app, flags);
  parse(app, words, notices);
  return flags.answering(env);
}

EmbeddingOptions parse_embedding_words(const std::vector<std::string>& words, const Env& env,
                                       std::vector<std::string>& notices) {
  EmbedFlags flags;
  CLI::App app("how rows become vectors", "lockstep embed");
  add_embedding_flags(app, flags);
  parse(app, words, notices);
  check_embedding_flags(app, flags);
  return flags.embedding(env);
}

}  // namespace lockstep
