#include "lockstep/data/random.h"

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

SplitMix64::SplitMix64(uint64_t seed, uint64_t stream) : state_(mix(seed + kGamma) ^ mix(mix(stream + 1) + kGamma)) {}

uint64_t SplitMix64::next() {
  state_ += kGamma;
  return mix(state_);
}

int64_t SplitMix64::below(int64_t bound) {
  check(bound > 0, "SplitMix64::below: the bound must be positive");
  const auto range = static_cast<uint64_t>(bound);
  // Values under 2^64 mod range would make some remainders likelier, so they are drawn again.
  const uint64_t unfair = (0 - range) % range;
  uint64_t value = next();
  while (value < unfair) value = next();
  return static_cast<int64_t>(value % range);
}

}  // namespace lockstep
