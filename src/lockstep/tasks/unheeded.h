// Words of a run that nothing in it reads: they are told, and never dropped in silence.
//
// Example:
//   for (const auto& words : unheeded_words(options, session.model())) events.emit(Notice{words});
#pragma once

#include <string>
#include <vector>

#include "lockstep/model/model.h"
#include "lockstep/tasks/answer_file.h"
#include "lockstep/tasks/embed.h"
#include "lockstep/tasks/evaluate.h"
#include "lockstep/tasks/fine_tune_options.h"

namespace lockstep {

/// "--packing_strategy sequential has no effect: ..."; one for each word that says something else than usual, and that
/// nothing heeds as the others and the model stand. `options.rows.speaks` is decided by then.
std::vector<std::string> unheeded_words(const FineTuneOptions& options, const Model& model);
std::vector<std::string> unheeded_words(const EvaluationOptions& options, const Model& model);
std::vector<std::string> unheeded_words(const EmbeddingOptions& options, const Model& model);
std::vector<std::string> unheeded_words(const AnswerFileOptions& options, const Model& model);
/// Of one that answers no file: in a conversation there are no rows.
std::vector<std::string> unheeded_in_talk(const AnswerFileOptions& options, const Model& model);

/// How adapters are to begin, where those of a checkpoint, which began otherwise, go on; "": nothing else was asked for.
std::string unheeded_beginning(const FineTuneOptions& options, const LoraConfig& resumed);

}  // namespace lockstep
