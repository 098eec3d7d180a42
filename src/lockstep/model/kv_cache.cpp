// K kv heads, S tokens of a slot, N query heads, H head size.
#include "lockstep/model/kv_cache.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {

/// keys, values [K, room, H], of which the first `length` tokens are filled.
struct KvCache::Held {
  Tensor keys, values;
  int64_t length = 0;
  bool begins_as_other = false;  // once it is written; until then others may begin as it does

  /// Room for `tokens` more, of which k is one or many: [..,K,T,H].
  void lengthen(const Tensor& k, int64_t tokens, int64_t capacity) {
    const int64_t total = length + tokens, room = keys.defined() ? keys.size(1) : 0;
    if (room < total) {
      const int64_t wanted = std::max({capacity, total, room + room / 2});
      keys = moved(keys, k, wanted);
      values = moved(values, k, wanted);
    }
    length = total;
  }

  /// k, v [K,T,H] behind what is here.
  void append(const Tensor& k, const Tensor& v, int64_t capacity) {
    const int64_t before = length, tokens = k.size(1);
    lengthen(k, tokens, capacity);
    keys.narrow(1, before, tokens).copy_(k);
    values.narrow(1, before, tokens).copy_(v);
  }

 private:
  Tensor moved(const Tensor& old, const Tensor& like, int64_t room) const {
    Tensor made = at::empty({like.size(-3), room, like.size(-1)}, like.options());
    if (length > 0) made.narrow(1, 0, length).copy_(old.narrow(1, 0, length));
    return made;
  }
};

/// Where the rows of a layer stand, for kernels that take all of them at once. Sent again only where more has changed than that
/// every row has one token more.
struct KvCache::OnGpu {
  static constexpr size_t kWords = 4;  // of a row: keys, values, tokens (-1: no row), room
  Tensor table;
  std::vector<int64_t> sent;
  int64_t steps = 0;  // since then

  void tell(const std::vector<int64_t>& now, const at::Device& device) {
    bool follows = table.defined() && sent.size() == now.size();
    for (size_t i = 0; follows && i < now.size(); ++i) {
      const bool counts = i % kWords == 2 && now[i] >= 0;
      follows = now[i] == sent[i] + (counts ? steps + 1 : 0);
    }
    if (follows) return void(++steps);
    table = sent_to(from_values(std::span<const int64_t>(now), {static_cast<int64_t>(now.size() / kWords), kWords}),
                    device);
    sent = now;
    steps = 0;
  }
};

KvCache::KvCache(int64_t layers, int64_t slots)
    : layers_(layers),
      slots_(static_cast<size_t>(slots)),
      held_(static_cast<size_t>(layers * slots)),
      on_gpu_(static_cast<size_t>(layers)) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

KvCache::Held& KvCache::held(int64_t layer, int64_t slot) {
  check(layer >= 0 && layer < layers_ && slot >= 0 && slot < slots(),
        "KvCache: a layer and a slot that it was made for");
  return held_[static_cast<size_t>(layer * slots() + slot)];
}

void KvCache::open(int64_t slot, int64_t capacity, int64_t kept) {
  Slot& opened = slots_.at(static_cast<size_t>(slot));
  check(!opened.open, "KvCache: a slot is closed before it is opened again");
  opened = {.open = true, .capacity = capacity};
  for (int64_t layer = 0; layer < layers_; ++layer) {
    Held& mine = held(layer, slot);
    check(mine.length >= kept, "KvCache: what is kept of a slot stands in it");
    if (kept == 0) mine = {};
    mine.length = kept;
    mine.begins_as_other = false;
  }
}

void KvCache::begin_as(int64_t slot, int64_t other, int64_t tokens) {
  Slot& begun = slots_.at(static_cast<size_t>(slot));
  check(begun.open && !begun.started && other != slot && other >= 0 && other < slots(),
        "KvCache: a row that has not started begins as another");
  begun.other = other;
  begun.tokens = tokens;
  for (int64_t layer = 0; layer < layers_; ++layer) held(layer, slot).begins_as_other = true;
}

void KvCache::start(int64_t slot) {
  Slot& started = slots_.at(static_cast<size_t>(slot));
  check(started.open, "KvCache: an open slot starts");
  started.started = true;
}

void KvCache::close(int64_t slot) {
  Slot& closed = slots_.at(static_cast<size_t>(slot));
  closed.open = closed.started = false;
}

std::pair<Tensor, Tensor> KvCache::write(int64_t layer, int64_t slot, const Tensor& k, const Tensor& v) {
  Held& mine = held(layer, slot);
  const Slot& of = slots_[static_cast<size_t>(slot)];
  check(k.dim() == 4 && k.size(0) == 1 && v.sizes() == k.sizes() && of.open,
        "KvCache: keys and values [1,K,T,H] of an open slot");
  if (mine.begins_as_other) {
    const Held& other = held(layer, of.other);
    check(other.length >= of.tokens, "KvCache: what a row begins with has been written");
    mine = {};
    mine.append(other.keys.narrow(1, 0, of.tokens), other.values.narrow(1, 0, of.tokens), of.capacity);
  }
  const bool alone = mine.length == 0;
  mine.append(k.select(0, 0), v.select(0, 0), of.capacity);
  if (alone) return {k, v};
  return {mine.keys.narrow(1, 0, mine.length).unsqueeze(0), mine.values.narrow(1, 0, mine.length).unsqueeze(0)};
}

Tensor KvCache::step(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v, int64_t window) {
  check(q.dim() == 4 && q.size(0) == slots() && q.size(2) == 1 && k.size(0) == slots(),
        "KvCache: one token for each slot");
  if (gpu::attends_one(q, q.size(3))) {
    const Tensor own_q = q.contiguous(), own_k = k.contiguous(), own_v = v.contiguous();
    return step_on_gpu(layer, {own_q, own_k, own_v}, window);
  }
  std::vector<fn::CachedRow> rows(slots_.size());
  for (int64_t slot = 0; slot < slots(); ++slot) {
    const Slot& of = slots_[static_cast<size_t>(slot)];
    if (!of.started) continue;
    Held& mine = held(layer, slot);
    check(mine.length > 0, "KvCache: a slot that has started holds its prompt");
    mine.lengthen(k, 1, of.capacity);
    rows[static_cast<size_t>(slot)] = {&mine.keys, &mine.values, mine.length,
                                       window > 0 ? std::max<int64_t>(0, mine.length - window) : 0};
  }
  fn::keep_token(k, v, rows);
  return fn::cached_attention(q, rows);
}

Tensor KvCache::step(int64_t layer, const fn::FusedHeads& fused, int64_t window) {
  const auto& [qkv, cos, sin, counts] = fused;
  const auto [heads, kv_heads, dim] = counts;
  check(qkv.size(0) == slots() && qkv.size(1) == 1, "KvCache: one token for each slot");
  if (!gpu::attends_one(qkv, dim) || dim % 2 != 0 || cos.scalar_type() != at::kFloat) {
    const auto parts = fn::split_heads(qkv, cos, sin, counts, /*repeat_kv=*/false);
    return step(layer, parts[0], parts[1], parts[2], window);
  }
  const auto cut = [width = dim, whole = qkv.contiguous()](int64_t first, int64_t count) {
    return whole.narrow(-1, first * width, count * width).unflatten(-1, {count, width}).transpose(1, 2);
  };
  const Tensor q = cut(0, heads), k = cut(heads, kv_heads), v = cut(heads + kv_heads, kv_heads);
  const Tensor cos_R1H = cos.contiguous(), sin_R1H = sin.contiguous();
  return step_on_gpu(layer, {q, k, v, &cos_R1H, &sin_R1H}, window);
}

Tensor KvCache::step_on_gpu(int64_t layer, const gpu::NewToken& token, int64_t window) {
  std::vector<int64_t> rows;
  rows.reserve(slots_.size() * OnGpu::kWords);
  int64_t longest = 0;
  for (int64_t slot = 0; slot < slots(); ++slot) {
    const Slot& of = slots_[static_cast<size_t>(slot)];
    if (!of.started) {
      rows.insert(rows.end(), {0, 0, -1, 0});
      continue;
    }
    Held& mine = held(layer, slot);
    check(mine.length > 0, "KvCache: a slot that has started holds its prompt");
    mine.lengthen(token.k, 1, of.capacity);
    longest = std::max(longest, mine.length);
    const auto at = [](const Tensor& x) { return x.is_meta() ? 0 : reinterpret_cast<int64_t>(x.const_data_ptr()); };
    rows.insert(rows.end(), {at(mine.keys), at(mine.values), mine.length, mine.keys.size(1)});
  }
  OnGpu& there = on_gpu_[static_cast<size_t>(layer)];
  there.tell(rows, token.q.device());
  const Tensor out = at::empty(token.q.sizes(), token.q.options());
  gpu::attend_one(token, {.table = there.table, .steps = there.steps, .longest = longest, .window = window}, out);
  return out;
}

}  // namespace lockstep
