// SentencePiece models of a few pieces, for tests and for the fuzzers' seeds.
//
// Example:
//   test_pieces::File file;
//   file.add("ab", -1).add("a", -2).add("b", -3);
//   write_text(dir / "tokenizer.model", file.bytes());
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/text/sentencepiece/model_file.h"

namespace lockstep::test_pieces {

inline std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

inline std::string number_field(uint32_t field, uint64_t value) { return varint(field << 3) + varint(value); }

inline std::string bytes_field(uint32_t field, std::string_view bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

inline std::string float_field(uint32_t field, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  std::string out = varint(field << 3 | 5);
  for (unsigned i = 0; i < 4; ++i) out += static_cast<char>(bits >> (8 * i));
  return out;
}

inline std::string piece(std::string_view text, float score, PieceType type) {
  return bytes_field(1, text) + float_field(2, score) + number_field(3, static_cast<uint64_t>(type));
}

/// <unk>, <s> and </s> come first, a BPE model that changes nothing of a text but its spaces, and puts none in front.
struct File {
  std::string pieces = bytes_field(1, piece("<unk>", 0, PieceType::kUnknown)) +
                       bytes_field(1, piece("<s>", 0, PieceType::kControl)) +
                       bytes_field(1, piece("</s>", 0, PieceType::kControl));
  std::string trainer = number_field(3, 2);
  std::string normalizer = number_field(3, 0) + number_field(4, 0);

  File& add(std::string_view text, float score, PieceType type = PieceType::kNormal) {
    pieces += bytes_field(1, piece(text, score, type));
    return *this;
  }
  File& add_bytes() {
    trainer += number_field(35, 1);
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    for (size_t b = 0; b < 256; ++b) {
      add(std::string("<0x") + kDigits[b / 16] + kDigits[b % 16] + ">", 0, PieceType::kByte);
    }
    return *this;
  }
  std::string bytes() const { return pieces + bytes_field(2, trainer) + bytes_field(3, normalizer); }
};

}  // namespace lockstep::test_pieces
