// Pieces back to text, as SentencePiece decodes them, piece by piece: what push and finish return adds up to the whole.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/text/sentencepiece/piece_model.h"

namespace lockstep {

class PieceText {
 public:
  explicit PieceText(const PieceModel& model) : model_(&model) {}

  /// The text that no later piece can change. `piece` may be any text: one that is no piece stands for itself.
  std::string push(std::string_view piece);
  /// What was held back, bytes of no character as U+FFFD; then a new text may begin.
  std::string finish();

 private:
  std::string take_characters(bool at_end);

  const PieceModel* model_;
  std::string bytes_;         // of byte pieces: the start of a character
  bool is_empty_ = true;      // no text so far
  bool drops_space_ = true;   // a space at the start of the next piece may be none of the text
  bool has_dropped_ = false;  // the last piece's was none
};

}  // namespace lockstep
