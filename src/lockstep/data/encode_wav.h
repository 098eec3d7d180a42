// A WAV file around samples of 16 bits, for programs and readers that take sound with its rate.
//
// Example:
//   const std::string wav = encode_wav(bytes, 16000);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// `samples`: bytes of little-endian 16-bit integers, the channels of a moment beside one another; `rate`: moments a second.
std::string encode_wav(std::string_view samples, int64_t rate, int64_t channels = 1);

}  // namespace lockstep
