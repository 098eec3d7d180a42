#include "lockstep/tensor/gpu_kernels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kRowThreads = 1024;  // of gpu_kernels.cuh
constexpr int64_t kWideBytes = 16;

std::atomic<GpuLauncher*>& launcher() {
  static std::atomic<GpuLauncher*> used{nullptr};
  return used;
}

struct Instance {
  const char* dtype;
  int64_t width;  // numbers that a thread reads at a time
};

Instance instance_of(const Tensor& x) {
  if (x.scalar_type() == at::kFloat) return {"f32", 4};
  return {x.scalar_type() == at::kHalf ? "f16" : "bf16", 8};
}

bool is_wide(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kWideBytes == 0; }

void launch(const Tensor& on, const char* kernel, bool wide, const KernelGrid& grid,
            std::vector<KernelArgument> arguments) {
  if (grid.x == 0) return;
  GpuLauncher* const used = launcher().load();
  check(used != nullptr, "kernels of GPUs: no library of them is open");
  used->launch(on.device().index(), kernel, std::string(instance_of(on).dtype) + (wide ? "_wide" : ""), grid,
               std::move(arguments));
}

int64_t blocks(int64_t items, int64_t width) { return (items + width * kThreads - 1) / (width * kThreads); }

/// Of numbers one behind the other, by the dtype of `x`; rows of `dim`, whose columns are read together.
struct Columns {
  bool wide;
  KernelGrid grid;
};
Columns columns_of(int64_t rows, int64_t dim, const Tensor& x, std::initializer_list<const Tensor*> all) {
  const int64_t width = instance_of(x).width;
  const bool wide = dim % width == 0 && std::ranges::all_of(all, [](const Tensor* t) { return is_wide(*t); });
  return {wide, {.x = rows, .y = blocks(dim, wide ? width : 1), .threads = kThreads}};
}

template <typename T = void>
T* of(const Tensor& x) {
  return static_cast<T*>(const_cast<void*>(x.const_data_ptr()));
}

/// Whether x goes into float32 sums 16 bytes at a time; of a narrow type, those stand in twice as many.
bool goes_wide(const Tensor& sum, const Tensor& x) {
  const int64_t width = instance_of(x).width;
  return x.numel() % width == 0 && is_wide(x) && reinterpret_cast<uintptr_t>(of(sum)) % (4 * width) == 0;
}

void heads(const char* kernel, const Tensor& fused, const Tensor& cos, const Tensor& sin, const HeadParts& parts,
           kernels::HeadLayout layout) {
  if (fused.is_meta()) return tell_hollow(kernel, {fused, cos, sin, parts.q, parts.k, parts.v});
  check(layout.copies == 1 && layout.head_dim % 2 == 0, "heads on a GPU: one copy, of even size");
  const int64_t half = layout.head_dim / 2, width = instance_of(fused).width;
  const bool wide = half % width == 0 && is_wide(fused) && is_wide(parts.q) && is_wide(parts.k) && is_wide(parts.v);
  const int64_t items = (layout.heads + 2 * layout.kv_heads) * (half / (wide ? width : 1));
  launch(fused, kernel, wide, {.x = fused.numel() / layout.width(), .y = blocks(items, 1), .threads = kThreads},
         {of(fused), of(parts.q), of(parts.k), of(parts.v), of(cos), of(sin), layout.heads, layout.kv_heads,
          layout.head_dim, cos.size(0) * cos.size(1)});
}

}  // namespace

void use_launcher(GpuLauncher* used) { launcher() = used; }

namespace {

HollowWatch& hollow_watch() {
  static HollowWatch watch;
  return watch;
}

}  // namespace

void watch_hollow(HollowWatch watch) { hollow_watch() = std::move(watch); }

void tell_hollow(const char* kernel, std::initializer_list<Tensor> tensors) {
  if (hollow_watch()) hollow_watch()(kernel, {tensors.begin(), tensors.size()});
}

int generation_of(const Tensor& x) {
  GpuLauncher* const used = is_gpu(x.device()) ? launcher().load() : nullptr;
  return used == nullptr ? 0 : used->generation(x.device().index());
}

bool has_kernels(const Tensor& x) {
  if (!fn::is_element(x)) return false;
  return x.is_meta() ? !DeviceMemory::current()->row_kernels() : is_gpu(x.device());
}

bool meet(const Tensor& a, const Tensor& b) { return has_kernels(a) && has_kernels(b) && a.device() == b.device(); }

void swiglu(const Tensor& gate_up, const Tensor& y) {
  if (y.is_meta()) return tell_hollow("swiglu", {gate_up, y});
  const int64_t dim = y.size(-1);
  const Columns columns = columns_of(y.numel() / dim, dim, y, {&gate_up, &y});
  launch(y, "swiglu", columns.wide, columns.grid, {of(gate_up), of(y), dim});
}

void swiglu_backward(const Tensor& grad, const Tensor& gate_up, const Tensor& d_gate_up) {
  if (grad.is_meta()) return tell_hollow("swiglu_backward", {grad, gate_up, d_gate_up});
  const int64_t dim = grad.size(-1);
  const Columns columns = columns_of(grad.numel() / dim, dim, grad, {&grad, &gate_up, &d_gate_up});
  launch(grad, "swiglu_backward", columns.wide, columns.grid, {of(grad), of(gate_up), of(d_gate_up), dim});
}

void split_heads(const Tensor& qkv, const Tensor& cos, const Tensor& sin, const HeadParts& parts,
                 kernels::HeadLayout layout) {
  heads("split_heads", qkv, cos, sin, parts, layout);
}

void join_heads(const Tensor& d_qkv, const Tensor& cos, const Tensor& sin, const HeadParts& parts,
                kernels::HeadLayout layout) {
  heads("join_heads", d_qkv, cos, sin, parts, layout);
}

void add_norm(const Tensor& x, const Tensor& y, const Tensor& w, const Tensor& sum, const Tensor& norm, double eps) {
  if (x.is_meta()) return tell_hollow("add_norm", {x, y, sum, norm});
  const int64_t dim = x.size(-1);
  const auto wide_all = {&x, &y, &w, &sum, &norm};
  const bool wide =
      dim % instance_of(x).width == 0 && std::ranges::all_of(wide_all, [](const Tensor* t) { return is_wide(*t); });
  launch(x, "add_norm", wide, {.x = x.numel() / dim, .threads = kThreads, .together = true},
         {of(x), of(y), of(w), of(sum), of(norm), dim, static_cast<float>(eps)});
}

void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& losses, const Tensor& hits, double weight,
                   bool grads) {
  if (logits.is_meta()) return tell_hollow("cross_entropy", {logits, logits, targets, losses, hits});
  const int64_t dim = logits.size(1);
  const bool wide = dim % instance_of(logits).width == 0 && is_wide(logits);
  launch(logits, "cross_entropy", wide, {.x = logits.size(0), .threads = kRowThreads, .together = true},
         {of(logits), of(targets), of(losses), of(hits), dim, static_cast<float>(weight), int64_t{grads ? 1 : 0}});
}

void accumulate(const Tensor& sum, const Tensor& x, bool adds) {
  if (x.is_meta()) return adds ? tell_hollow("accumulate", {sum, sum, x}) : tell_hollow("accumulate", {sum, x});
  const int64_t width = instance_of(x).width, count = x.numel();
  const bool wide = goes_wide(sum, x);
  launch(x, "accumulate", wide, {.x = blocks(count, wide ? width : 1), .threads = kThreads},
         {of(sum), of(x), count, int64_t{adds ? 1 : 0}});
}

void accumulate(std::span<const Tensor> sums, std::span<const Tensor> xs, bool adds) {
  check(!xs.empty() && xs.size() <= kFewSums && sums.size() == xs.size(), "a few sums of one launch");
  if (xs[0].is_meta()) return tell_hollow("accumulate_few", {});  // small: a launch costs more than their bytes
  bool wide = true;
  int64_t longest = 0;
  std::vector<KernelArgument> arguments;
  for (size_t i = 0; i < kFewSums; ++i) {
    const bool there = i < xs.size();
    arguments.emplace_back(there ? of(sums[i]) : nullptr);
    arguments.emplace_back(there ? of(xs[i]) : nullptr);
    arguments.emplace_back(there ? xs[i].numel() : int64_t{0});
    if (!there) continue;
    check(xs[i].scalar_type() == xs[0].scalar_type(), "sums of one launch are of one dtype");
    wide = wide && goes_wide(sums[i], xs[i]);
    longest = std::max(longest, xs[i].numel());
  }
  arguments.emplace_back(int64_t{adds ? 1 : 0});
  launch(xs[0], "accumulate_few", wide,
         {.x = blocks(longest, wide ? instance_of(xs[0]).width : 1),
          .y = static_cast<int64_t>(xs.size()),
          .threads = kThreads},
         std::move(arguments));
}

void scale(const Tensor& x, const Tensor& by) {
  if (x.is_meta()) return tell_hollow("scale", {x, x});
  const int64_t width = instance_of(x).width, count = x.numel();
  const bool wide = count % width == 0 && is_wide(x);
  launch(x, "scale", wide, {.x = blocks(count, wide ? width : 1), .threads = kThreads}, {of(x), of(by), count});
}

void drop(const Tensor& to, const Tensor& x, uint64_t key, uint64_t threshold, double scale) {
  if (x.is_meta()) return tell_hollow("drop", {x, to});
  const int64_t width = instance_of(x).width, count = x.numel();
  const bool wide = count % width == 0 && is_wide(x) && is_wide(to);
  launch(x, "drop", wide, {.x = blocks(count, wide ? width : 1), .threads = kThreads},
         {of(to), of(x), count, static_cast<int64_t>(key), static_cast<int64_t>(threshold), static_cast<float>(scale)});
}

bool attends_one(const Tensor& x, int64_t dim) {
  constexpr int64_t kMostHeadDim = 256;  // of gpu_decode.cuh
  return has_kernels(x) && dim <= kMostHeadDim;
}

void attend_one(const NewToken& token, const HeldRows& rows, const Tensor& out) {
  const auto& [q, k, v, cos, sin] = token;
  constexpr int64_t kKeysOfPart = 256, kMostHeads = 8;  // of gpu_decode.cuh
  static_assert(kThreads <= kKeysOfPart, "a block's threads meet in room for one number a key");
  const int64_t heads = q.size(1), kv_heads = k.size(1), dim = q.size(3);
  check(v.stride(0) == k.stride(0) && (cos == nullptr || (cos->size(1) == 1 && dim % 2 == 0)),
        "a token of rows whose heads stand alike");
  const int64_t parts = (rows.longest + kKeysOfPart - 1) / kKeysOfPart;
  const int64_t bundles = (heads / kv_heads + kMostHeads - 1) / kMostHeads;
  const Tensor found =
      at::empty({parts > 1 ? q.size(0) * heads * parts * (dim + 2) : 0}, q.options().dtype(at::kFloat));
  if (q.is_meta()) {
    tell_hollow("attend_one", {q, k, v, parts > 1 ? found : out});
    return parts > 1 ? tell_hollow("attend_join", {found, out}) : void();
  }
  const bool wide =
      dim % instance_of(q).width == 0;  // only keys and values are read so, which stand at a cache's beginning
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  launch(q, "attend_one", wide,
         {.x = q.size(0) * kv_heads * bundles, .y = std::max<int64_t>(1, parts), .threads = kThreads, .together = true},
         {of(q), of(k), of(v), q.stride(0), k.stride(0), cos == nullptr ? nullptr : of(*cos),
          sin == nullptr ? nullptr : of(*sin), cos == nullptr ? 1 : cos->size(0), of(out), of(found), of(rows.table),
          rows.steps, rows.window, heads, kv_heads, dim, parts, scale});
  if (parts <= 1) return;
  launch(q, "attend_join", wide, {.x = q.size(0) * heads, .threads = kThreads},
         {of(found), of(out), of(rows.table), rows.steps, rows.window, heads, kv_heads, dim, parts});
}

void adamw(const Tensor& weights, const Tensor& master, const Tensor& grad, const Tensor& exp_avg,
           const Tensor& exp_avg_sq, const AdamW& with) {
  if (master.is_meta()) {
    return tell_hollow("adamw", {master, master, grad, exp_avg, exp_avg, exp_avg_sq, exp_avg_sq, weights});
  }
  check(!weights.defined() || meet(weights, master), "an update of weights beside their masters");
  const Tensor& as = weights.defined() ? weights : master;
  const int64_t width = instance_of(as).width, count = master.numel();
  const auto aligned = [&](const Tensor& x) { return reinterpret_cast<uintptr_t>(of(x)) % (4 * width) == 0; };
  const bool wide =
      count % width == 0 && aligned(master) && aligned(grad) && aligned(exp_avg) && aligned(exp_avg_sq) && is_wide(as);
  const auto updates = static_cast<double>(with.updates);
  const double correction = 1.0 - std::pow(with.beta1, updates);
  const double root = std::sqrt(1.0 - std::pow(with.beta2, updates));
  const auto number = [](double x) { return static_cast<float>(x); };
  void* const rounded = weights.defined() ? of(weights) : nullptr;
  launch(as, "adamw", wide, {.x = blocks(count, wide ? width : 1), .threads = kThreads},
         {rounded, of(master), of(grad), of(exp_avg), of(exp_avg_sq), count, number(1.0 - with.rate * with.decay),
          number(with.rate / correction), number(with.beta1), number(with.beta2), number(with.epsilon), number(root),
          number(with.divisor)});
}

}  // namespace lockstep::gpu
