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
#include "lockstep/tensor/packed_product.h"
#include "lockstep/tensor/product.h"

namespace lockstep::fn {
namespace {

using kernels::Bf16;
using kernels::kPanelColumns;

constexpr int64_t kMostRows = 64;
constexpr int64_t kOutputs = 96;  // of a task

bool pairs_few_rows(const Tensor& x) {
  static const bool quicker = !is_intel();
  return x.size(-1) % 2 == 0 && multiplies_pairs(x) && PairedProducts::made(quicker);
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

/// Words of a panel that are multiplied at a time: numbers as among many rows, so that they have the same bits.
int64_t words_together(int64_t words, bool pairs) { return pairs ? kernels::kPanelDepth : packed_depth(words); }

int64_t columns_of(const Tensor& panels) { return panels.size(0) * kPanelColumns; }

/// Sums, weights that are widened, and results of a task that is not a whole one.
struct FloatsOfThread {
  int64_t sums, wide;
  FloatsOfThread(const Tensor& panels, const Tensor& w, bool pairs)
      : sums(kOutputs * columns_of(panels)),
        wide(pairs || w.scalar_type() == at::kFloat ? 0 : kOutputs * words_together(w.size(1), pairs)) {}
  int64_t all() const { return 2 * sums + wide; }
};

template <typename T>
class FewRowsProduct {
 public:
  FewRowsProduct(const Tensor& out, const Tensor& panels, const Tensor& w, const Tensor& bias, bool pairs)
      : out_(out), panels_(panels), w_(w), bias_(bias), pairs_(pairs) {}

  /// memory: FloatsOfThread for each thread.
  void run(float* memory) const {
    kernels::parallel_rows(up_to(w_.size(0), kOutputs) / kOutputs, 1, [&](int64_t begin, int64_t end) {
      const FloatsOfThread floats(panels_, w_, pairs_);
      float* const sums = memory + at::get_thread_num() * floats.all();
      float* const wide = sums + floats.sums;
      const Scratch scratch{sums, wide, reinterpret_cast<T*>(wide + floats.wide)};
      for (int64_t task = begin; task < end; ++task) run_task(task * kOutputs, scratch);
    });
  }

 private:
  struct Scratch {
    float* sums;  // [kOutputs, columns]
    float* wide;  // weights [kOutputs, words], where they are not multiplied as they are
    T* turned;    // [columns, kOutputs]
  };
  int64_t columns() const { return columns_of(panels_); }

  void run_task(int64_t first, const Scratch& scratch) const {
    const int64_t n = std::min(kOutputs, w_.size(0) - first), of_word = pairs_ ? 2 : 1, words = w_.size(1) / of_word;
    const bool begun = bias_.defined() || words == 0;
    for (int64_t o = 0; begun && o < n; ++o) {
      std::fill_n(scratch.sums + o * columns(), columns(), bias_.defined() ? read_of<float>(bias_)[first + o] : 0.0F);
    }
    const int64_t together = words_together(words, pairs_);
    for (int64_t k = 0; k < words; k += together) {
      const T* const w = read_of<T>(w_) + first * w_.stride(0) + k * of_word;
      add_words(w, n, {k, std::min(together, words - k)}, begun || k > 0, scratch);
    }
    T* const to = write_of<T>(out_) + first;
    if (n == kOutputs) {
      return kernels::table<T>().store_transposed(scratch.sums, columns(), to, out_.stride(0), out_.size(0), n);
    }
    kernels::table<T>().store_transposed(scratch.sums, columns(), scratch.turned, kOutputs, columns(), kOutputs);
    for (int64_t m = 0; m < out_.size(0); ++m) {
      std::memcpy(to + m * out_.stride(0), scratch.turned + m * kOutputs, static_cast<size_t>(n) * sizeof(T));
    }
  }

  struct Piece {
    int64_t begin, words;
  };
  /// n rows of w, which begin at the piece; add: to sums, else these are the first.
  void add_words(const T* w, int64_t n, Piece piece, bool add, const Scratch& scratch) const {
    const auto [k, words] = piece;
    const float* wide = scratch.wide;
    int64_t step = words;
    if constexpr (std::is_same_v<T, float>) {
      wide = w;
      step = w_.stride(0);
    } else if (!pairs_) {
      kernels::table<T>().widen_rows(w, w_.stride(0), scratch.wide, n, words);
    }
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
                                                 .pairs = words,
                                                 .add = add});
          continue;
        }
      }
      kernels::table<T>().multiply_panel({.a = wide,
                                          .b = reinterpret_cast<const float*>(x),
                                          .out = out,
                                          .a_step = step,
                                          .b_step = kPanelColumns,
                                          .out_step = columns(),
                                          .rows = n,
                                          .columns = kPanelColumns,
                                          .depth = words,
                                          .add = add,
                                          .far = p == 0 && std::is_same_v<T, float>});
    }
  }

  const Tensor &out_, &panels_, &w_, &bias_;
  bool pairs_;
};

}  // namespace

bool multiplies_few_rows(const Tensor& x, int64_t rows) {
  return rows >= 2 && rows <= kMostRows && on_cpu(x) &&
         (widens(x) || pairs_few_rows(x) || multiplies_by_own_kernels(x));
}

void multiply_few_rows(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const bool pairs = pairs_few_rows(x);
  const Tensor panels = panels_of(x, pairs ? 2 : 1), bias_N = bias.defined() ? bias.to(at::kFloat) : Tensor();
  const Tensor memory =
      at::empty({at::get_num_threads(), FloatsOfThread(panels, w, pairs).all()}, x.options().dtype(at::kFloat));
  with_element(out,
               [&]<typename T>() { FewRowsProduct<T>(out, panels, w, bias_N, pairs).run(write_of<float>(memory)); });
}

}  // namespace lockstep::fn
