#include "lockstep/text/sentencepiece/piece_table.h"

#include <utility>

namespace lockstep {

PieceTable::PieceTable(std::vector<PieceEntry> pieces) : pieces_(std::move(pieces)) {
  ids_.reserve(pieces_.size());
  for (int32_t id = 0; id < size(); ++id) {
    const PieceEntry& piece = at(id);
    ids_.emplace(piece.text, id);
    if (piece.type == PieceType::kUnknown) unknown_ = id;
    if (piece.type != PieceType::kByte) continue;
    bytes_.resize(256, -1);
    bytes_.at(static_cast<size_t>(byte_of_piece(piece.text))) = id;
  }
}

std::optional<int32_t> PieceTable::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace lockstep
