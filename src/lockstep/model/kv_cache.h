// Keys and values of the rows being generated. A row owns a slot from its prompt to its last token; every slot has its
// own length, so rows of any length stand beside each other without padding, come and go.
//
// Example:
//   KvCache cache(dims.layers, 8);
//   cache.open(3, prompt_tokens + 64);                  // slot 3, room for so many tokens at once
//   Context prompt{.cache = &cache, .slot = 3};         // one row [1,T]: what it makes is kept
//   Context step{.cache = &cache};                      // [8,1]: one token for each slot, empty ones ignored
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tensor/fwd.h"

namespace lockstep {

class KvCache {
 public:
  KvCache(int64_t layers, int64_t slots);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  int64_t slots() const { return static_cast<int64_t>(open_.size()); }
  /// Begins a row in a closed slot. `capacity`: tokens reserved at once; it grows when exceeded.
  void open(int64_t slot, int64_t capacity);
  /// Ends the row; its memory is given back.
  void close(int64_t slot);

  /// A prompt's k, v [1,K,T,H] of one layer become what its slot holds.
  void write(int64_t layer, int64_t slot, const Tensor& k, const Tensor& v);
  /// One more token for every slot that holds a prompt: its k, v [slots,K,1,H] are kept, its query q [slots,N,1,H]
  /// looks at all the slot's tokens -> [slots,N,1,H], zeros for other slots. What a slot gets depends on that slot
  /// alone.
  /// `window`: of all the slot's tokens, only the last so many are looked at (0: all); they are kept all the same.
  Tensor step(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v, int64_t window = 0);

 private:
  struct Held;
  Held& held(int64_t layer, int64_t slot);

  int64_t layers_;
  std::vector<bool> open_;
  std::vector<int64_t> capacity_;
  std::vector<Held> held_;  // [layers * slots]
};

}  // namespace lockstep
