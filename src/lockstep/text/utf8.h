// UTF-8 by hand: stepping, repairing, and code points to bytes.
//
// Example:
//   for (size_t i = 0; i < text.size();) {
//     const Utf8Step step = utf8_step(text, i);
//     use(step.code_point);
//     i += step.size;
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// One step through bytes: a whole character, or the longest broken start of one.
struct Utf8Step {
  char32_t code_point = 0xFFFD;
  size_t size = 1;  // bytes to go on by, at least 1
  bool valid = false;
  bool truncated = false;  // not valid only because the text ends here
};

/// `at` must be inside the text. A broken part is as long as the start of some valid character, as Unicode recommends.
Utf8Step utf8_step(std::string_view text, size_t at);

/// The text with every broken part replaced by U+FFFD.
std::string repair_utf8(std::string_view text);
bool is_valid_utf8(std::string_view text);
/// Bytes at the end that start a character and need more bytes to become one.
size_t utf8_unfinished(std::string_view text);

void append_utf8(std::string& out, char32_t code_point);
/// Size of the character whose first byte this is, in valid text.
size_t utf8_size(char first_byte);

}  // namespace lockstep
