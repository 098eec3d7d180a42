// The pieces of a SentencePiece model by id and by text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/text/sentencepiece/model_file.h"

namespace lockstep {

class PieceTable {
 public:
  /// No two texts are the same, one piece is unknown (read_piece_model).
  explicit PieceTable(std::vector<PieceEntry> pieces);
  PieceTable(PieceTable&&) noexcept = default;  // what ids_ points to stays where it is
  PieceTable& operator=(PieceTable&&) noexcept = default;

  int32_t size() const { return static_cast<int32_t>(pieces_.size()); }
  const PieceEntry& at(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  bool has(int32_t id) const { return id >= 0 && id < size(); }
  std::optional<int32_t> find(std::string_view text) const;
  int32_t unknown() const { return unknown_; }
  /// The id of the text's piece; of the unknown one where it is none.
  int32_t id_of(std::string_view text) const { return find(text).value_or(unknown_); }
  /// The pieces of the 256 bytes; empty where the model has none.
  const std::vector<int32_t>& bytes() const { return bytes_; }

 private:
  std::vector<PieceEntry> pieces_;
  std::unordered_map<std::string_view, int32_t> ids_;  // keys point into pieces_
  std::vector<int32_t> bytes_;
  int32_t unknown_ = 0;
};

}  // namespace lockstep
