#include "lockstep/text/sentencepiece/charsmap.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Fields of a unit of the double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFU; }
uint32_t label_of(uint32_t unit) { return unit & (0x80000000U | 0xFFU); }
size_t offset_of(uint32_t unit) { return size_t{unit >> 10} << ((unit & 0x200U) >> 6); }

uint32_t little_endian(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& where) {
  if (blob.empty()) return;
  if (blob.size() <= 4) {
    throw checkpoint_error(
        fmt::format("{}: precompiled_charsmap: expected more than 4 bytes, found {}", where, blob.size()));
  }
  const size_t size = little_endian(blob, 0);
  if (size > blob.size() - 4 || size % 4 != 0 || size == 0) {
    throw checkpoint_error(
        fmt::format("{}: precompiled_charsmap: expected an array of whole units in {} bytes, found one of {} bytes",
                    where, blob.size() - 4, size));
  }
  units_.reserve(size / 4);
  for (size_t at = 4; at < 4 + size; at += 4) units_.push_back(little_endian(blob, at));
  replacements_ = blob.substr(4 + size);
}

Charsmap::Rule Charsmap::longest(std::string_view text) const {
  Rule found;
  if (units_.empty()) return found;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const size_t at = value_of(units_[node]);
    if (at >= replacements_.size()) continue;  // no replacement stands there: no rule
    const std::string_view rest = std::string_view(replacements_).substr(at);
    found = {i + 1, rest.substr(0, rest.find('\0'))};
  }
  return found;
}

}  // namespace lockstep
