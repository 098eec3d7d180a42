// A SentencePiece BPE model: texts to the ids of its pieces, exactly as the sentencepiece library gives them. Safe to
// share between threads.
//
// Example:
//   const PieceModel model(read_piece_model("tokenizer.model"));
//   PieceIds out;
//   model.encode("Hello world", true, out);  // out.ids
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/sentencepiece/model_file.h"
#include "lockstep/text/sentencepiece/piece_merges.h"
#include "lockstep/text/sentencepiece/piece_normalizer.h"
#include "lockstep/text/sentencepiece/piece_table.h"
#include "lockstep/text/word_cache.h"

namespace lockstep {

struct PieceIds {
  struct Unknown {
    size_t at;         // in ids
    std::string text;  // neighbours that are unknown are one
  };
  std::vector<int32_t> ids;
  std::vector<Unknown> unknown;  // in order; without byte pieces only
};

class PieceModel {
 public:
  explicit PieceModel(PieceModelFile file);

  /// Appends the pieces of a text. `has_prefix` false: no space is put in front, whatever the model says.
  void encode(std::string_view text, bool has_prefix, PieceIds& out) const;

  const PieceTable& table() const { return table_; }
  /// Whether one space at the start of what pieces spell is none of the text; whether all are.
  bool drops_first_space() const { return drops_first_space_; }
  bool drops_all_spaces() const { return drops_all_spaces_; }
  const std::string& unknown_surface() const { return unknown_surface_; }

 private:
  void encode_word(std::string_view word, PieceIds& out) const;

  PieceTable table_;
  PieceNormalizer normalizer_;
  PieceMerges merges_;
  bool drops_first_space_, drops_all_spaces_;
  std::string unknown_surface_;
  std::unique_ptr<WordCache> cache_;
};

}  // namespace lockstep
