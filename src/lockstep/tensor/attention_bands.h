// Attention with a window where our own kernels do not run: LibTorch's kernel knows none, so it gets some queries at a time
// with the keys that any of them sees, and a mask for the corners. What it computes is tokens x window, not tokens squared.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lockstep/tensor/attention_cpu.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::fn {

/// Queries [query, query + queries) and the keys [key, key + keys) that any of them sees.
struct Band {
  int64_t query, queries, key, keys;
};
/// Of so many tokens that look back at `window`, themselves among them; `most` queries a band.
std::vector<Band> bands_of(int64_t tokens, int64_t window, int64_t most);

/// Masks of all bands are parts of one.
class BandMask {
 public:
  /// What is added to scores: 0 and minus infinity, in the dtype of `like` and on its device.
  BandMask(int64_t window, int64_t most, const Tensor& like);
  Tensor of(const Band& band) const;  // [queries, keys]

 private:
  int64_t window_;
  Tensor whole_;
};

/// Fills out and lse, as AttentionTrace has them, by LibTorch's kernel; window > 0, as many queries as keys. Of hollow
/// tensors: takes the same working memory.
void forward_bands(const AttentionTrace& trace);
/// Fills the gradients of q, k, v, likewise.
void backward_bands(const Tensor& grad, const AttentionTrace& trace, const std::array<Tensor, 3>& grads);

}  // namespace lockstep::fn
