// A small random generator whose numbers are the same on every machine and compiler, unlike <random>'s distributions.
#pragma once

#include <cstdint>

namespace lockstep {

/// SplitMix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
class SplitMix64 {
 public:
  /// Two seeds that differ in either number give unrelated streams.
  explicit SplitMix64(uint64_t seed, uint64_t stream = 0);

  uint64_t next();
  /// Uniform over [0, bound), without bias; bound > 0.
  int64_t below(int64_t bound);

 private:
  uint64_t state_;
};

}  // namespace lockstep
