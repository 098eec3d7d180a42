// What a program that keeps a model open says of it, in the words of the command line: the model itself, and how rows are
// answered or embedded with each call. tasks/open_model takes what they mean.
//
// Example:
//   const ModelWords words = parse_model_words({"--model", "m", "--torch_dtype", "bfloat16"}, env, notices);
//   OpenModel model(words.run, events);
//   const auto answers = model.answer(rows, parse_answering_words({"--max_new_tokens", "8"}, words, env, notices), events);
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/tasks/answer_file.h"
#include "lockstep/tasks/embed.h"

namespace lockstep {

struct ModelWords {
  RunOptions run;
  std::vector<std::string> answering;  // what the checkpoint, or the stack of these words, says where nobody does
  std::vector<std::string> variables;  // "NAME=VALUE": how pictures and films are made
  std::vector<std::string> defaults;   // the same, where the environment does not say it
};

/// Each throws UserError(kUsage), also for a word that belongs to another of the three. `notices`: what was understood of words of
/// other stacks is added.
ModelWords parse_model_words(const std::vector<std::string>& words, const Env& env, std::vector<std::string>& notices);
AnswerFileOptions parse_answering_words(const std::vector<std::string>& words, const ModelWords& model, const Env& env,
                                        std::vector<std::string>& notices);
EmbeddingOptions parse_embedding_words(const std::vector<std::string>& words, const ModelWords& model, const Env& env,
                                       std::vector<std::string>& notices);

}  // namespace lockstep
