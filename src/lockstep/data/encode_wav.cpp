#include "lockstep/data/encode_wav.h"

namespace lockstep {

std::string encode_wav(std::string_view samples, int64_t rate, int64_t channels) {
  std::string wav;
  const auto number = [&](int64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) wav += static_cast<char>((value >> (8 * i)) & 0xFF);
  };
  const auto size = static_cast<int64_t>(samples.size());
  wav += "RIFF";
  number(size + 36, 4);
  wav += "WAVEfmt ";
  number(16, 4);
  number(1, 2);  // integers
  number(channels, 2);
  number(rate, 4);
  number(rate * channels * 2, 4);
  number(channels * 2, 2);
  number(16, 2);
  wav += "data";
  number(size, 4);
  return wav += samples;
}

}  // namespace lockstep
