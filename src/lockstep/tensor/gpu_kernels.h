// The program's own kernels on GPUs (gpu_kernels.cuh): what LibTorch would do in several passes over memory, in one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>

#include "lockstep/tensor/fwd.h"
#include "lockstep/tensor/gpu_launcher.h"
#include "lockstep/tensor/kernels.h"

namespace lockstep::gpu {

/// From now on kernels are run by it; before any tensor of a GPU is computed with.
void use_launcher(GpuLauncher* launcher);

/// The compute capability of its GPU, 90 of 9.0; 0 where there is none.
int generation_of(const Tensor& x);

/// Whether it stands on a GPU, in a dtype that the kernels know, or is rehearsed so.
bool has_kernels(const Tensor& x);

/// Whether kernels can take both: they have them, and stand on one GPU.
bool meet(const Tensor& a, const Tensor& b);

/// Told of each kernel that hollow tensors are given to, with all that it reads and writes: where kernels and bytes of a
/// rehearsal are counted. From now on, until another; empty: nobody is. Not while something is rehearsed.
using HollowWatch = std::function<void(const char* kernel, std::span<const Tensor> tensors)>;
void watch_hollow(HollowWatch watch);
void tell_hollow(const char* kernel, std::initializer_list<Tensor> tensors);

// Tensors are contiguous and on one GPU; hollow ones are left alone.

/// gate_up [..., 2 * dim] -> y [..., dim].
void swiglu(const Tensor& gate_up, const Tensor& y);
void swiglu_backward(const Tensor& grad, const Tensor& gate_up, const Tensor& d_gate_up);

struct HeadParts {
  const Tensor &q, &k, &v;  // [B,T,N,H], [B,T,K,H] twice
};
/// qkv [B,T,width] -> parts, q and k turned; cos, sin [B or 1,T,H] float32. One copy of each kv head.
void split_heads(const Tensor& qkv, const Tensor& cos, const Tensor& sin, const HeadParts& parts,
                 kernels::HeadLayout layout);
/// The way back, of gradients.
void join_heads(const Tensor& d_qkv, const Tensor& cos, const Tensor& sin, const HeadParts& parts,
                kernels::HeadLayout layout);

/// x, y [..., dim], w [dim] -> sum = x + y, and its root mean square norm.
void add_norm(const Tensor& x, const Tensor& y, const Tensor& w, const Tensor& sum, const Tensor& norm, double eps);

/// logits [C,V] become gradients when `grads` is set; losses [C] float64, hits [C] uint8.
void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& losses, const Tensor& hits, double weight,
                   bool grads);

/// sum [n] float32 := x [n], or += when `adds`.
void accumulate(const Tensor& sum, const Tensor& x, bool adds);

/// The same of at most kFewSums in one launch, all x of one dtype: for those so small that a launch costs more than they do.
inline constexpr size_t kFewSums = 4;
void accumulate(std::span<const Tensor> sums, std::span<const Tensor> xs, bool adds);

/// x [n] *= by, a float32 scalar on the GPU.
void scale(const Tensor& x, const Tensor& by);

/// to [n] = x [n] * scale, or 0 where the number of `key`'s sequence at that place is below `threshold` (fn::dropout).
void drop(const Tensor& to, const Tensor& x, uint64_t key, uint64_t threshold, double scale);

/// Rows whose keys and values [K,room,H] stand in a cache.
struct HeldRows {
  /// [R,4] int64, on the GPU: of each row where its keys and where its values stand, its tokens when this was written (-1: no row
  /// is there), room.
  const Tensor& table;
  int64_t steps = 0;    // tokens that every row has more by now, the one that comes among them
  int64_t longest = 0;  // tokens of the longest row by now
  int64_t window = 0;   // that a query sees back; 0: all
};
/// Whether a GPU takes tokens of x, heads of `dim`.
bool attends_one(const Tensor& x, int64_t dim);
/// What a token brings: q [R,N,1,H], k, v [R,K,1,H], the heads of a row one behind the other. Tables cos, sin [R or 1,1,H] float32
/// that turn q and k; null: they are turned.
struct NewToken {
  const Tensor &q, &k, &v;
  const Tensor *cos = nullptr, *sin = nullptr;
};
/// One query a row: k, v become its last token, which q looks back from -> out [R,N,1,H], zeros where no row is. What a row gets
/// depends on that row alone.
void attend_one(const NewToken& token, const HeldRows& rows, const Tensor& out);

struct AdamW {
  double rate, decay, beta1, beta2, epsilon;
  double divisor;  // of the gradient
  int64_t updates;
};
/// Of float32 tensors [n]; `weights`, unless undefined, become the new master in their dtype.
void adamw(const Tensor& weights, const Tensor& master, const Tensor& grad, const Tensor& exp_avg,
           const Tensor& exp_avg_sq, const AdamW& with);

}  // namespace lockstep::gpu
