// Byte-pair merging as SentencePiece does it: the characters of a text merge, of all neighbours that make a piece those
// with the best score first, the leftmost among equals, until none are left. User-defined symbols of the text stand apart
// and never merge; a piece that is marked as unused is undone again.
//
// What merges with what is worked out once: each way to cut a piece in two becomes a pair of symbols (MergeTable), so that
// no text is hashed while merging.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lockstep/text/merge_table.h"
#include "lockstep/text/sentencepiece/piece_table.h"
#include "lockstep/text/sentencepiece/prefix_matcher.h"

namespace lockstep {

struct PieceSpan {
  int32_t id = -1;  // of the unknown piece where the text is none
  size_t size = 0;  // bytes of the text
};

class PieceMerges {
 public:
  /// Throws UserError(kCheckpoint) naming `where` when the pieces can be made in too many ways.
  PieceMerges(const PieceTable& table, const std::string& where);

  /// What a whole text becomes.
  std::vector<PieceSpan> cut(std::string_view text) const;
  const PrefixMatcher& symbols() const { return user_defined_; }

  /// Where the next word ends: no piece stands across that place, so that words are cut one by one with the same result.
  size_t word_end(std::string_view text, size_t begin) const;

 private:
  struct Pair {
    int32_t left, right, result;
  };
  void add_characters(const PieceTable& table);
  std::vector<Pair> pairs(const PieceTable& table, const std::string& where) const;
  void rank(const PieceTable& table, const std::vector<Pair>& pairs);
  int32_t symbol_of(std::string_view character) const;
  std::vector<int32_t> first_symbols(std::string_view text) const;
  void undo_unused(std::vector<int32_t>& symbols) const;

  MergeTable merges_{0};
  PrefixMatcher user_defined_;
  // A symbol is a piece (its id) or a character that is none; the last one is every character that no piece holds.
  std::unordered_map<uint32_t, int32_t> characters_;  // packed -> symbol
  std::vector<int32_t> ids_;                          // by symbol: what it is in the end
  std::vector<uint16_t> sizes_;                       // by symbol: bytes; 0: of every character that no piece holds
  std::vector<bool> unused_;                          // by symbol; empty: none is
  std::unordered_set<uint32_t> joins_space_;          // packed characters that stand before a space within some piece
};

}  // namespace lockstep
