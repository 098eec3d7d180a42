#include "lockstep/watch/crc32c.h"

#include <array>

namespace lockstep {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? (value >> 1) ^ 0x82F63B78U : value >> 1;
    table[i] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t value = 0xFFFFFFFFU;
  for (const char c : bytes) value = kTable[(value ^ static_cast<unsigned char>(c)) & 0xFFU] ^ (value >> 8);
  return ~value;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t value = crc32c(bytes);
  return ((value >> 15) | (value << 17)) + 0xA282EAD8U;
}

}  // namespace lockstep
