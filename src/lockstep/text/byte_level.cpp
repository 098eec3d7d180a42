#include "lockstep/text/byte_level.h"

#include <array>

#include "lockstep/text/utf8.h"

namespace lockstep {
namespace {

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int, 0x144> byte{};  // -1: not of the alphabet

  constexpr Alphabet() {
    for (int& b : byte) b = -1;
    char32_t next = 0x100;  // bytes that do not print take the characters from here on
    for (unsigned b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = prints ? b : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) append_utf8(out, kAlphabet.character[static_cast<unsigned char>(c)]);
  return out;
}

std::optional<std::string> alphabet_to_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    if (!step.valid || step.code_point >= kAlphabet.byte.size() || kAlphabet.byte[step.code_point] < 0) return {};
    out.push_back(static_cast<char>(kAlphabet.byte[step.code_point]));
    i += step.size;
  }
  return out;
}

}  // namespace lockstep
