// CRC-32C (Castagnoli), the checksum of TFRecord framing.
//
// Example:
//   crc32c("123456789")         // 0xE3069283
//   masked_crc32c(length_bytes) // what a TFRecord stores
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// The checksum of `bytes`. Source: RFC 3720, appendix B.4 (reflected polynomial 0x82F63B78).
uint32_t crc32c(std::string_view bytes);

/// The rotated and offset form, so that a checksum stored inside checksummed data stays useful. Source: TFRecord
/// format.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep
