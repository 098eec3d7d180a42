// Ids of a PieceSteps back to text, id by id: what push and finish return adds up to decoding all of them.
//
// Special tokens stand in the text as they are, other added tokens with a space on each side. Where the tokenizer puts a
// space before the text that a special token follows (`legacy`), that text is held back until it is known what follows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/text/sentencepiece/clean_up.h"
#include "lockstep/text/sentencepiece/piece_steps.h"
#include "lockstep/text/sentencepiece/piece_text.h"

namespace lockstep {

class PieceStream {
 public:
  PieceStream(const PieceSteps& steps, bool skip_special_tokens);

  std::string push(int32_t id);  // the new text that is now certain
  std::string finish();          // what was held back; then a new text may begin

 private:
  std::string push_apart(const std::string& token);
  std::string push_in_run(std::string_view token);
  std::string in_run(const std::string& text, bool at_end);
  std::string end_run();

  const PieceSteps* steps_;
  bool skip_special_tokens_;
  bool holds_back_;         // the pieces of a run wait for what follows them
  bool has_parts_ = false;  // some text stands before this, so that a space comes between
  bool has_space_ = false;  // that space is written

  // A run: tokens up to one that stands apart.
  size_t run_size_ = 0;
  bool run_has_text_ = false, after_special_ = false;
  std::string held_;
  PieceText pieces_;
  CleanUp clean_run_, clean_all_;
};

}  // namespace lockstep
