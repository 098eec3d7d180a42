#include "lockstep/text/sentencepiece/piece_text.h"

#include "lockstep/text/normalizer.h"
#include "lockstep/text/utf8.h"

namespace lockstep {

// Each byte that belongs to no character is one U+FFFD.
std::string PieceText::take_characters(bool at_end) {
  std::string out;
  while (!bytes_.empty()) {
    const Utf8Step step = utf8_step(bytes_, 0);
    if (step.truncated && !at_end) break;
    out += step.valid ? bytes_.substr(0, step.size) : "\xEF\xBF\xBD";
    bytes_.erase(0, step.valid ? step.size : 1);
  }
  if (!out.empty()) is_empty_ = false;
  return out;
}

std::string PieceText::push(std::string_view piece) {
  const PieceTable& table = model_->table();
  const int32_t id = table.id_of(piece);
  const PieceType type = table.at(id).type;
  if (type == PieceType::kByte) {
    bytes_ += static_cast<char>(byte_of_piece(piece));
    return take_characters(false);
  }
  std::string out = take_characters(true);
  if (has_dropped_ || !is_empty_) drops_space_ = false;
  has_dropped_ = false;
  std::string text;
  if (type == PieceType::kUnknown) {
    text = table.at(id).text == piece ? model_->unknown_surface() : piece;
  } else if (type != PieceType::kControl) {
    if (drops_space_ && model_->drops_first_space() && piece.starts_with(kPieceSpace)) {
      piece.remove_prefix(kPieceSpace.size());
      has_dropped_ = !model_->drops_all_spaces();
    }
    text = replace_all(piece, kPieceSpace, " ");
  }
  if (!text.empty()) is_empty_ = false;
  return out + text;
}

std::string PieceText::finish() {
  std::string rest = take_characters(true);
  *this = PieceText(*model_);
  return rest;
}

}  // namespace lockstep
