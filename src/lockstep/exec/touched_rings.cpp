#include "lockstep/exec/touched_rings.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "lockstep/comm/backend_shm.h"

namespace lockstep {

void TouchedRings::shares(int64_t bytes) {
  do {
    stretches_.insert({.turn = turns_++ % kShmSlots, .bytes = std::min(bytes, kDataSlotBytes), .read_from = 0});
    bytes -= kDataSlotBytes;
  } while (bytes > 0);
}

void TouchedRings::reduces(int64_t bytes) {
  const int64_t of_each = bytes / ranks_;
  stretches_.insert({.turn = turns_++ % kShmSlots, .bytes = bytes, .read_from = (ranks_ - 1) * of_each});
}

void TouchedRings::phase_ends() {
  period_ = std::gcd(std::gcd(period_, turns_), kShmSlots);
  turns_ = 0;
}

int64_t TouchedRings::bytes() const {
  const int64_t period = std::max<int64_t>(period_, 1);
  int64_t sum = 0;
  for (int64_t slot = 0; slot < kShmSlots; ++slot) {
    std::vector<Stretch> here;
    std::ranges::copy_if(stretches_, std::back_inserter(here),
                         [&](const Stretch& one) { return (one.turn - slot) % period == 0; });
    int64_t own = 0, read = 0, until = 0;
    std::ranges::sort(here, {}, &Stretch::read_from);
    for (const Stretch& one : here) {
      own = std::max(own, one.bytes);
      read += std::max<int64_t>(0, one.bytes - std::max(one.read_from, until));
      until = std::max(until, one.bytes);
    }
    sum += own + (ranks_ - 1) * read;
  }
  return sum;
}

}  // namespace lockstep
