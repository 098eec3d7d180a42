// What a program that keeps a model open says of it, in the words of the command line: the model itself, and how rows are
// answered or embedded with each call. tasks/open_model takes what they mean.
//
// Example:
//   OpenModel model(parse_model_words({"--model", "m", "--torch_dtype", "bfloat16"}, env, notices), events);
//   const auto answers = model.answer(rows, parse_answering_words({"--max_new_tokens", "8"}, env, notices), events);
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/tasks/answer_file.h"
#include "lockstep/tasks/embed.h"

namespace lockstep {

/// Each throws UserError(kUsage), also for a word that belongs to another of the three. `notices`: what was understood of words of
/// other stacks is added.
RunOptions parse_model_words(const std::vector<std::string>& words, const Env& env, std::vector<std::string>& notices);
AnswerFileOptions parse_answering_words(const std::vector<std::string>& words, const Env& env,
                                        std::vector<std::string>& notices);
EmbeddingOptions parse_embedding_words(const std::vector<std::string>& words, const Env& env,
                                       std::vector<std::string>& notices);

}  // namespace lockstep
