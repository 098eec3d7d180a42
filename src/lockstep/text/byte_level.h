// The byte-level alphabet of GPT-2: each of the 256 bytes has a printable character.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// The bytes written in the alphabet: " a" becomes "Ġa".
std::string bytes_to_alphabet(std::string_view bytes);
/// Back again; nothing when a character is not of the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view text);

}  // namespace lockstep
