#include "lockstep/model/kv_cache.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/error.h"

namespace lockstep {

/// keys, values [B,K,capacity,H], of which the first `length` tokens are filled.
struct KvCache::Layer {
  Tensor keys, values;
  int64_t length = 0;
};

KvCache::KvCache(int64_t layers, int64_t capacity) : layers_(static_cast<size_t>(layers)), capacity_(capacity) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

std::pair<Tensor, Tensor> KvCache::append(int64_t layer, const Tensor& k, const Tensor& v) {
  check(layer >= 0 && layer < static_cast<int64_t>(layers_.size()), "KvCache: a layer that the cache was made for");
  Layer& held = layers_[static_cast<size_t>(layer)];
  const int64_t tokens = k.size(2), total = held.length + tokens;
  if (!held.keys.defined() || held.keys.size(2) < total) {
    const int64_t room = std::max(capacity_, held.keys.defined() ? std::max(total, 2 * held.keys.size(2)) : total);
    const auto grown = [&](const Tensor& like, const Tensor& old) {
      Tensor made = at::empty({like.size(0), like.size(1), room, like.size(3)}, like.options());
      if (held.length > 0) made.narrow(2, 0, held.length).copy_(old.narrow(2, 0, held.length));
      return made;
    };
    held.keys = grown(k, held.keys);
    held.values = grown(v, held.values);
  }
  held.keys.narrow(2, held.length, tokens).copy_(k);
  held.values.narrow(2, held.length, tokens).copy_(v);
  held.length = total;
  length_ = total;
  return {held.keys.narrow(2, 0, total), held.values.narrow(2, 0, total)};
}

int64_t KvCache::length() const { return length_; }

void KvCache::keep_rows(const Tensor& rows) {
  for (auto& layer : layers_) {
    if (!layer.keys.defined()) continue;
    layer.keys = layer.keys.index_select(0, rows);
    layer.values = layer.values.index_select(0, rows);
  }
}

}  // namespace lockstep
