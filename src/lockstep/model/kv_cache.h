// Keys and values of the rows being generated. A row owns a slot from its prompt to its last token; every slot has its
// own length, so rows of any length stand beside each other without padding, come and go. A prompt may be read in pieces, and
// a row go on behind the first tokens of another.
//
// Example:
//   KvCache cache(dims.layers, 8);
//   cache.open(3, prompt_tokens + 64);                  // slot 3, room for so many tokens at once
//   Context prompt{.cache = &cache, .slot = 3};         // one row [1,T]: what it makes is kept
//   cache.start(3);                                     // its prompt is read
//   Context step{.cache = &cache};                      // [8,1]: one token for each slot, those not started ignored
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/tensor/fwd.h"

namespace lockstep {
namespace fn {
struct FusedHeads;
}
namespace gpu {
struct NewToken;
}

class KvCache {
 public:
  KvCache(int64_t layers, int64_t slots);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  /// Begins a row in a closed slot. `capacity`: tokens reserved at once; it grows when exceeded. `kept`: of what the slot
  /// held before, so many of the first tokens are the new row's; the rest is given back.
  void open(int64_t slot, int64_t capacity, int64_t kept = 0);
  /// The row begins as the first `tokens` of another slot, in place of what it holds: they are copied as its next are written,
  /// layer by layer, and may be written in the same pass before. Until then its own stay, for others that begin with them.
  void begin_as(int64_t slot, int64_t other, int64_t tokens);
  /// The prompt is read: one token a step from now on.
  void start(int64_t slot);
  /// Ends the row. What the slot holds stays until it is opened again.
  void close(int64_t slot);

  /// The next k, v [1,K,T,H] of a row's prompt in one layer are kept; all that the slot holds then, [1,K,S,H].
  std::pair<Tensor, Tensor> write(int64_t layer, int64_t slot, const Tensor& k, const Tensor& v);
  /// One more token for every slot that has started: its k, v [slots,K,1,H] are kept, its query q [slots,N,1,H]
  /// looks at all the slot's tokens -> [slots,N,1,H], zeros for other slots. What a slot gets depends on that slot
  /// alone.
  /// `window`: of all the slot's tokens, only the last so many are looked at (0: all); they are kept all the same.
  Tensor step(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v, int64_t window = 0);
  /// The same of what split_heads() would cut: on a GPU one kernel does it all.
  Tensor step(int64_t layer, const fn::FusedHeads& fused, int64_t window = 0);

 private:
  struct Held;
  struct OnGpu;
  struct Slot {
    bool open = false, started = false;
    int64_t capacity = 0;
    int64_t other = 0, tokens = 0;  // whose first tokens it begins with
  };
  Held& held(int64_t layer, int64_t slot);
  Tensor step_on_gpu(int64_t layer, const gpu::NewToken& token, int64_t window);

  int64_t layers_;
  std::vector<Slot> slots_;
  std::vector<Held> held_;     // [layers * slots]
  std::vector<OnGpu> on_gpu_;  // [layers]
};

}  // namespace lockstep
