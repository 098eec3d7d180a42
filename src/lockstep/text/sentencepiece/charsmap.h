// The `precompiled_charsmap` of a SentencePiece model: which starts of a text are written otherwise (NFKC, lower case).
//
// Layout: the size of a double array in bytes (uint32, little endian), the array (uint32 units), then the replacements,
// each ended by a zero byte. The array is a trie (darts-clone): every step is an index that the file gives, so that every
// step is checked against the array's end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Charsmap {
 public:
  /// `blob` may be empty: no rules. Throws UserError(kCheckpoint) naming `where` for sizes that do not fit.
  Charsmap(std::string_view blob, const std::string& where);

  bool empty() const { return units_.empty(); }
  struct Rule {
    size_t size = 0;               // bytes of the text that are replaced; 0: no rule holds
    std::string_view replacement;  // points into the map
  };
  /// The longest rule for the start of `text`.
  Rule longest(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace lockstep
