// K kv heads, S tokens of a slot, N query heads, H head size.
#include "lockstep/model/kv_cache.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/fn.h"

namespace lockstep {

/// keys, values [K, room, H], of which the first `length` tokens are filled.
struct KvCache::Held {
  Tensor keys, values;
  int64_t length = 0;

  /// Room for `tokens` more, of which k is one or many: [B,K,T,H].
  void lengthen(const Tensor& k, int64_t tokens, int64_t capacity) {
    const int64_t total = length + tokens, room = keys.defined() ? keys.size(1) : 0;
    if (room < total) {
      const int64_t wanted = std::max({capacity, total, room + room / 2});
      keys = moved(keys, k, wanted);
      values = moved(values, k, wanted);
    }
    length = total;
  }

 private:
  Tensor moved(const Tensor& old, const Tensor& like, int64_t room) const {
    Tensor made = at::empty({like.size(1), room, like.size(3)}, like.options());
    if (length > 0) made.narrow(1, 0, length).copy_(old.narrow(1, 0, length));
    return made;
  }
};

KvCache::KvCache(int64_t layers, int64_t slots)
    : layers_(layers),
      open_(static_cast<size_t>(slots), false),
      capacity_(static_cast<size_t>(slots), 0),
      held_(static_cast<size_t>(layers * slots)) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

KvCache::Held& KvCache::held(int64_t layer, int64_t slot) {
  check(layer >= 0 && layer < layers_ && slot >= 0 && slot < slots(),
        "KvCache: a layer and a slot that it was made for");
  return held_[static_cast<size_t>(layer * slots() + slot)];
}

void KvCache::open(int64_t slot, int64_t capacity) {
  check(!open_.at(static_cast<size_t>(slot)), "KvCache: a slot is closed before it is opened again");
  open_[static_cast<size_t>(slot)] = true;
  capacity_[static_cast<size_t>(slot)] = capacity;
}

void KvCache::close(int64_t slot) {
  open_.at(static_cast<size_t>(slot)) = false;
  for (int64_t layer = 0; layer < layers_; ++layer) held(layer, slot) = {};
}

void KvCache::write(int64_t layer, int64_t slot, const Tensor& k, const Tensor& v) {
  check(k.dim() == 4 && k.size(0) == 1 && v.sizes() == k.sizes() && open_.at(static_cast<size_t>(slot)),
        "KvCache: keys and values [1,K,T,H] of an open slot");
  Held& mine = held(layer, slot);
  const int64_t before = mine.length, tokens = k.size(2);
  mine.lengthen(k, tokens, capacity_[static_cast<size_t>(slot)]);
  mine.keys.narrow(1, before, tokens).copy_(k.select(0, 0));
  mine.values.narrow(1, before, tokens).copy_(v.select(0, 0));
}

Tensor KvCache::step(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v, int64_t window) {
  check(q.dim() == 4 && q.size(0) == slots() && q.size(2) == 1 && k.size(0) == slots(),
        "KvCache: one token for each slot");
  std::vector<fn::CachedRow> rows(open_.size());
  for (int64_t slot = 0; slot < slots(); ++slot) {
    Held& mine = held(layer, slot);
    if (mine.length == 0) continue;  // free, or its prompt comes later in this pass
    mine.lengthen(k, 1, capacity_[static_cast<size_t>(slot)]);
    rows[static_cast<size_t>(slot)] = {&mine.keys, &mine.values, mine.length,
                                       window > 0 ? std::max<int64_t>(0, mine.length - window) : 0};
  }
  fn::keep_token(k, v, rows);
  return fn::cached_attention(q, rows);
}

}  // namespace lockstep
