// A model that is loaded once and then answers and embeds rows again and again, alone in its process: for programs that hold
// rows, and not files of them. Several ranks are for answer_file and embed.
//
// Example:
//   OpenModel model({.model = "m"}, events);
//   const Dataset rows = Dataset::of_text("rows", R"([{"query": "What is 1 + 1?"}])", {});
//   for (const Json& row : model.answer(rows, {.max_new_tokens = 8}, events)) std::cout << row["response"] << "\n";
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/base/json.h"
#include "lockstep/session/session.h"
#include "lockstep/tasks/answer_file.h"
#include "lockstep/tasks/embed.h"

namespace lockstep {

/// Vectors of rows, float32, behind one another: one of `width` numbers a row, or one a token (Extent::kInputs).
struct RowVectors {
  std::vector<float> values;
  int64_t width = 0;
  std::vector<int64_t> rows, tokens;      // of each row that has vectors: its index, and its tokens
  std::map<int64_t, std::string> errors;  // of the others, by index: where and why
};

/// One thread uses it, and makes it: what it holds is counted where that thread stands. Where that thread is Interruptible, its
/// calls throw Interrupted, and the model can be used again.
class OpenModel {
 public:
  /// Opens and loads. Throws UserError, also for what only several ranks could do.
  OpenModel(RunOptions run, const EventBus& events);
  ~OpenModel();

  /// One entry a row, in their order, as a line of answer_file's output. Of `options` run, input, output and overwrite are not
  /// looked at. Throws UserError.
  std::vector<Json> answer(const Dataset& rows, AnswerFileOptions options, const EventBus& events);
  /// The vectors that embed() writes. Of `options` run, dataset, output, safetensors and overwrite are not looked at. Throws
  /// UserError.
  RowVectors embed(const Dataset& rows, EmbeddingOptions options, const EventBus& events);

  const Session& session() const { return session_; }

 private:
  Job job_;
  Session session_;
};

}  // namespace lockstep
