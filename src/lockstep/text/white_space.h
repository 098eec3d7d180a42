// Characters by Unicode property, as tokenizers test them at the edges of a text.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

bool is_white_space(char32_t code_point);
bool is_punctuation(char32_t code_point);  // ASCII punctuation and category P
bool is_number(char32_t code_point);       // category N
bool is_word(char32_t code_point);         // what \w matches

size_t white_space_at_start(std::string_view text);  // bytes
size_t white_space_at_end(std::string_view text);    // bytes
bool starts_with_word(std::string_view text);
bool ends_with_word(std::string_view text);

}  // namespace lockstep
