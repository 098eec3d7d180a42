// What a SentencePiece model does to a text before it cuts it: its table of characters, its spaces, the space in front.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/text/sentencepiece/charsmap.h"
#include "lockstep/text/sentencepiece/model_file.h"
#include "lockstep/text/sentencepiece/prefix_matcher.h"

namespace lockstep {

inline constexpr std::string_view kPieceSpace = "\xE2\x96\x81";  // U+2581 stands for a space

class PieceNormalizer {
 public:
  PieceNormalizer(const PieceNormalization& settings, const std::string& where);

  /// `symbols` of the text stay as they are. `has_prefix` false leaves out the space in front, for a text that continues
  /// another. `text` is valid UTF-8. Throws UserError(kCheckpoint) when the table makes a text too long.
  std::string apply(std::string_view text, const PrefixMatcher& symbols, bool has_prefix = true) const;

 private:
  struct Step {
    std::string_view text;  // what stands for the start of the rest
    size_t size;            // of that start
  };
  Step step(std::string_view rest, const PrefixMatcher& symbols) const;
  std::string apply_simply(std::string_view text, bool has_prefix) const;

  Charsmap charsmap_;
  bool add_prefix_, remove_extra_;
  std::string space_;
};

}  // namespace lockstep
