// M rows, K summed over, N outputs. A panel has kPanelColumns rows of x side by side: words of 32 bits, which are pairs of bfloat16
// or numbers of float32.
#include "lockstep/tensor/few_rows_product.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/machine.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/kernels_pairs.h"
#include "lockstep/tensor/product.h"

namespace lockstep::fn {
namespace {

using kernels::Bf16;
using kernels::kPanelColumns;

constexpr int64_t kMostRows = 64;
constexpr int64_t kWords = kernels::kPanelDepth;  // of a panel that are multiplied at a time
constexpr int64_t kOutputs = 96;                  // of a task

bool pairs_few_rows(const Tensor& x) {
  static const bool quicker = !is_intel();
  return x.scalar_type() == at::kBFloat16 && x.size(-1) % 2 == 0 && kernels::pair_table() != nullptr && !widens(x) &&
         PairedProducts::made(quicker);
}

/// x [M,K] -> [panels, words, kPanelColumns], zeros behind.
Tensor panels_of(const Tensor& x_MK, int64_t numbers_of_word) {
  const auto options = numbers_of_word == 1 ? x_MK.options().dtype(at::kFloat) : x_MK.options();
  const int64_t M = x_MK.size(0), K = x_MK.size(1), words = up_to(K / numbers_of_word, kPanelColumns);
  const Tensor padded = at::zeros({up_to(M, kPanelColumns), words * numbers_of_word}, options);
  padded.narrow(0, 0, M).narrow(1, 0, K).copy_(x_MK);
  const Tensor panels = at::empty({padded.size(0) / kPanelColumns, words, kPanelColumns}, options.dtype(at::kInt));
  for (int64_t p = 0; p < panels.size(0) && !panels.is_meta(); ++p) {
    kernels::table<float>().transpose_words(read_of<uint32_t>(padded.narrow(0, p * kPanelColumns, kPanelColumns)),
                                            words, write_of<uint32_t>(panels.select(0, p)), kPanelColumns,
                                            kPanelColumns, words);
  }
  return panels;
}

int64_t columns_of(const Tensor& panels) { return panels.size(0) * kPanelColumns; }

/// Sums, weights that are widened, and results of 16 bits.
int64_t floats_of_thread(const Tensor& panels, bool pairs) {
  return kOutputs * columns_of(panels) + (pairs ? 0 : kOutputs * kWords) + kOutputs * columns_of(panels) / 2;
}

template <typename T>
class FewRowsProduct {
 public:
  FewRowsProduct(const Tensor& out, const Tensor& panels, const Tensor& w, const Tensor& bias, bool pairs)
      : out_(out), panels_(panels), w_(w), bias_(bias), pairs_(pairs) {}

  /// memory: floats_of_thread() for each thread.
  void run(float* memory) const {
    kernels::parallel_rows(up_to(w_.size(0), kOutputs) / kOutputs, 1, [&](int64_t begin, int64_t end) {
      float* const sums = memory + at::get_thread_num() * floats_of_thread(panels_, pairs_);
      float* const wide = sums + kOutputs * columns();
      const Scratch scratch{sums, wide, reinterpret_cast<T*>(wide + (pairs_ ? 0 : kOutputs * kWords))};
      for (int64_t task = begin; task < end; ++task) run_task(task * kOutputs, scratch);
    });
  }

 private:
  struct Scratch {
    float* sums;  // [kOutputs, columns]
    float* wide;  // weights [kOutputs, kWords], where they are not multiplied as they are
    T* rounded;   // [columns, kOutputs]
  };
  int64_t columns() const { return columns_of(panels_); }

  void run_task(int64_t first, const Scratch& scratch) const {
    const int64_t n = std::min(kOutputs, w_.size(0) - first), of_word = pairs_ ? 2 : 1, words = w_.size(1) / of_word;
    for (int64_t o = 0; o < n; ++o) {
      std::fill_n(scratch.sums + o * columns(), columns(), bias_.defined() ? read_of<float>(bias_)[first + o] : 0.0F);
    }
    for (int64_t k = 0; k < words; k += kWords) {
      add_words(read_of<T>(w_) + first * w_.stride(0) + k * of_word, n, k, std::min(kWords, words - k), scratch);
    }
    kernels::table<T>().store_transposed(scratch.sums, columns(), scratch.rounded, kOutputs, columns(), kOutputs);
    for (int64_t m = 0; m < out_.size(0); ++m) {
      std::memcpy(write_of<T>(out_) + m * out_.stride(0) + first, scratch.rounded + m * kOutputs,
                  static_cast<size_t>(n) * sizeof(T));
    }
  }

  void add_words(const T* w, int64_t n, int64_t k, int64_t words, const Scratch& scratch) const {
    if (!pairs_) kernels::table<T>().widen_rows(w, w_.stride(0), scratch.wide, n, words);
    for (int64_t p = 0; p < panels_.size(0); ++p) {
      const auto* const x = read_of<uint32_t>(panels_) + p * panels_.stride(0) + k * kPanelColumns;
      float* const out = scratch.sums + p * kPanelColumns;
      if constexpr (std::is_same_v<T, Bf16>) {
        if (pairs_) {
          kernels::pair_table()->multiply_panel({.w = w,
                                                 .x = reinterpret_cast<const Bf16*>(x),
                                                 .out = out,
                                                 .w_step = w_.stride(0),
                                                 .out_step = columns(),
                                                 .rows = n,
                                                 .pairs = words});
          continue;
        }
      }
      kernels::table<T>().multiply_panel({.a = scratch.wide,
                                          .b = reinterpret_cast<const float*>(x),
                                          .out = out,
                                          .a_step = words,
                                          .b_step = kPanelColumns,
                                          .out_step = columns(),
                                          .rows = n,
                                          .columns = kPanelColumns,
                                          .depth = words,
                                          .add = true});
    }
  }

  const Tensor &out_, &panels_, &w_, &bias_;
  bool pairs_;
};

}  // namespace

bool multiplies_few_rows(const Tensor& x, int64_t rows) {
  return rows >= 2 && rows <= kMostRows && on_cpu(x) && (widens(x) || pairs_few_rows(x));
}

void multiply_few_rows(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const bool pairs = pairs_few_rows(x);
  const Tensor panels = panels_of(x, pairs ? 2 : 1), bias_N = bias.defined() ? bias.to(at::kFloat) : Tensor();
  const Tensor memory =
      at::empty({at::get_num_threads(), floats_of_thread(panels, pairs)}, x.options().dtype(at::kFloat));
  with_element(out, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, float>) {
      FewRowsProduct<T>(out, panels, w, bias_N, pairs).run(write_of<float>(memory));
    }
  });
}

}  // namespace lockstep::fn
