// The seam between data and families: a Processor turns a Sample into Features. One a family, in zoo/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/features.h"

namespace lockstep {

class Tokenizer;

/// What becomes of a row that is longer than max_length. Placeholders of media are never cut.
enum class Truncation { kDelete, kRight, kLeft };

struct ProcessOptions {
  int64_t max_length = 0;  // tokens; 0 = no limit
  Truncation truncation = Truncation::kDelete;
};

/// Immutable and thread-safe: the loader calls it from several threads.
class Processor {
 public:
  virtual ~Processor() = default;

  /// Whole conversation with labels, for training and for loss. Throws UserError(kData) naming the row.
  virtual Features train_features(const Sample& sample, const ProcessOptions& options) const = 0;

  /// Everything up to the last assistant message (or all, when the last turn is the user's) + generation prompt.
  virtual Features prompt_features(const Sample& sample, const ProcessOptions& options) const = 0;

  virtual const Tokenizer& tokenizer() const = 0;
  virtual std::vector<int32_t> stop_tokens() const = 0;
  virtual int32_t pad_token() const = 0;
};

/// The response that a row expects: the last assistant message, or "" when there is none.
std::string expected_response(const Sample& sample);

}  // namespace lockstep
