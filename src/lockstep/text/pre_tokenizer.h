// The `pre_tokenizer` of a tokenizer.json: Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, Sequence.
//
// Cuts a text into words, which the model then tokenizes one by one. ByteLevel's alphabet is not put on here: the
// words stay raw bytes and `byte_level()` tells the model to spell them in the alphabet.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/json.h"

namespace lockstep {

/// A part of a text. `at_start` where it begins at the first character of what was given to the tokenizer.
struct Piece {
  std::string_view text;
  bool at_start = false;
};

/// Pieces on their way; `storage` owns the texts that are not part of the caller's.
struct Pieces {
  std::vector<Piece> list;
  std::deque<std::string> storage;
  bool continues = false;  // no prefix is put before the piece at the start

  std::string_view keep(std::string text) { return storage.emplace_back(std::move(text)); }
};

class PreTokenizer {
 public:
  struct Step;
  /// `config` may be null. Throws UserError(kCheckpoint) naming `where` and the type.
  PreTokenizer(const Json& config, const std::string& where);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  bool byte_level() const { return byte_level_; }
  void apply(Pieces& pieces) const;

 private:
  void read(const Json& config, const std::string& where);

  std::vector<std::unique_ptr<Step>> steps_;
  bool byte_level_ = false;
};

}  // namespace lockstep
