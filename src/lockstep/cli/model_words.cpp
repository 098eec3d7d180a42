#include "lockstep/cli/model_words.h"

#include <algorithm>
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

using Words = std::vector<std::string>;

bool has(const CLI::App& app, const std::string& flag) { return app.get_option_no_throw(flag) != nullptr; }

/// Flags that stand in `words`, each with its values.
std::vector<Words> by_flag(const Words& words) {
  std::vector<Words> out;
  for (const auto& word : words) {
    if (out.empty() || word.starts_with("--")) out.emplace_back();
    out.back().push_back(word);
  }
  return out;
}

/// --help, which would be printed, is no word of a program. Of flags that nobody gave, those that the app has not are returned;
/// and `beside` is what counts where neither `words` nor what they bring with them says it.
Words parse(CLI::App& app, const Words& words, const Words& beside, std::vector<std::string>& notices) {
  app.set_help_flag();
  const Translation translation = translate("infer", words, is_ours);
  Words taken, others;
  for (const Words& flag : by_flag(translation.words)) {
    const bool is_others = translation.unsaid.contains(flag[0]) && !has(app, flag[0]);
    Words& where = is_others ? others : taken;
    where.insert(where.end(), flag.begin(), flag.end());
  }
  for (const Words& flag : by_flag(beside)) {
    if (std::ranges::find(translation.words, flag[0]) == translation.words.end())
      taken.insert(taken.end(), flag.begin(), flag.end());
  }
  (void)parse_flags(app, taken);
  for (auto& text : translation.notices()) notices.push_back(std::move(text));
  return others;
}

}  // namespace

ModelWords parse_model_words(const Words& words, const Env& env, std::vector<std::string>& notices) {
  InferFlags flags;
  CLI::App app("a model that stays open", "lockstep infer");
  add_run_flags(app, flags.run);
  app.add_option("--merge_lora", flags.given.run.merge_adapter,
                 "put the adapter into the weights while they are loaded");
  ModelWords out;
  out.answering = parse(app, words, {}, notices);
  out.run = flags.run.options(flags.run.with_variables(env));
  out.run.merge_adapter = flags.given.run.merge_adapter;
  out.variables = flags.run.variables;
  out.defaults = flags.run.media_defaults;
  return out;
}

AnswerFileOptions parse_answering_words(const Words& words, const ModelWords& model, const Env& env,
                                        std::vector<std::string>& notices) {
  InferFlags flags;
  CLI::App app("how rows are answered", "lockstep infer");
  add_answering_flags(app, flags);
  (void)parse(app, words, model.answering, notices);
  flags.run.variables = model.variables;
  flags.run.media_defaults = model.defaults;
  return flags.answering(env);
}

EmbeddingOptions parse_embedding_words(const Words& words, const ModelWords& model, const Env& env,
                                       std::vector<std::string>& notices) {
  EmbedFlags flags;
  CLI::App app("how rows become vectors", "lockstep embed");
  add_embedding_flags(app, flags);
  (void)parse(app, words, {}, notices);
  check_embedding_flags(app, flags);
  flags.run.variables = model.variables;
  return flags.embedding(env);
}

}  // namespace lockstep
