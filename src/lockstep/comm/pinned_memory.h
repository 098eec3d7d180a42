// Memory of the host that GPUs fetch from by themselves: a copy from there is queued, and the host goes on. Of whole pages and
// of the size asked for; LibTorch's own allocator of such memory takes the next power of two.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

class PinnedMemory {
 public:
  /// Zeros. Throws UserError(kMemory). Where the system lets none be pinned it is memory as any other: copies are slower.
  explicit PinnedMemory(int64_t bytes);
  ~PinnedMemory();  // nothing may be copied any more
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* bytes() const { return bytes_; }

 private:
  std::byte* bytes_ = nullptr;
  size_t size_ = 0;
  bool pinned_ = false;
};

}  // namespace lockstep
