// M rows, K summed over, N columns. A block of a has kRows rows, a panel of b kColumns columns, both kDepth deep at most.
#include "lockstep/tensor/packed_product.h"

#include <algorithm>
#include <cstring>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/machine.h"
#include "lockstep/tensor/fn_common.h"

namespace lockstep::fn {
namespace {

/// A block of a has so many rows, a panel of b so many columns. A sum goes over `depth` numbers at most before it is added to
/// the result: a longer one loses more bits.
struct Blocking {
  int64_t rows, columns, depth;
};
constexpr Blocking kBrgemm{.rows = 128, .columns = 64, .depth = 512};
constexpr Blocking kPanels{.rows = 96, .columns = kernels::kPanelColumns, .depth = 384};  // one panel: most of 32 KiB

/// oneDNN's kernels where it has them for AVX-512, else our own.
bool by_brgemm() {
  static const bool chosen = kernels::instruction_set() == "AVX-512";
  return chosen;
}

constexpr int64_t kRowsTogether = 1024, kColumnsTogether = 1024;  // packed at a time: 2 MiB of each
constexpr int64_t kStep = 16;   // of rows and depth; what is left over is filled up to it: kernels of few sizes
constexpr int64_t kLeast = 32;  // of M, K and N: with fewer, LibTorch is as quick or quicker

int64_t up_to(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/// A float32 matrix with steps between rows and columns, one of which is 1.
struct Matrix {
  const float* data;
  int64_t row_step, column_step;
  const float* at(int64_t row, int64_t column) const { return data + row * row_step + column * column_step; }
};
Matrix matrix_of(const Tensor& x) { return {x.is_meta() ? nullptr : read_of<float>(x), x.stride(0), x.stride(1)}; }

/// [rows, columns] from (row, column) on -> `to` [padded_rows, padded_columns], zeros behind.
struct Piece {
  int64_t row, column, rows, columns, padded_rows, padded_columns;
};

void pack_straight(const Matrix& from, const Piece& piece, float* to) {
  constexpr int64_t kTogether = 16;  // of a size that is known: a call of memmove takes longer than they do
  for (int64_t r = 0; r < piece.rows; ++r) {
    const float* const source = from.at(piece.row + r, piece.column);
    float* const row = to + r * piece.padded_columns;
    int64_t c = 0;
    for (; c + kTogether <= piece.columns; c += kTogether) std::memcpy(row + c, source + c, kTogether * sizeof(float));
    std::copy(source + c, source + piece.columns, row + c);
    std::fill(row + piece.columns, row + piece.padded_columns, 0.0F);
  }
  std::fill(to + piece.rows * piece.padded_columns, to + piece.padded_rows * piece.padded_columns, 0.0F);
}

/// Of a matrix whose columns are contiguous.
void pack_turned(const Matrix& from, const Piece& piece, float* to) {
  constexpr int64_t kTile = 16;
  const int64_t rows = piece.rows / kTile * kTile, columns = piece.columns / kTile * kTile;
  if (piece.rows < piece.padded_rows || piece.columns < piece.padded_columns) {
    std::fill_n(to, piece.padded_rows * piece.padded_columns, 0.0F);
  }
  kernels::table<float>().transpose_words(reinterpret_cast<const uint32_t*>(from.at(piece.row, piece.column)),
                                          from.column_step, reinterpret_cast<uint32_t*>(to), piece.padded_columns,
                                          columns, rows);
  for (int64_t r = 0; r < piece.rows; ++r) {
    for (int64_t c = r < rows ? columns : 0; c < piece.columns; ++c) {
      to[r * piece.padded_columns + c] = *from.at(piece.row + r, piece.column + c);
    }
  }
}

/// Rows of a matrix whose columns are contiguous, as kernels::PanelProduct has them woven.
void weave(const Matrix& from, const Piece& piece, float* to) {
  constexpr int64_t kRows = kernels::kPanelRows;
  for (int64_t k = 0; k < piece.columns; ++k) {
    const float* const source = from.at(piece.row, piece.column + k);
    float* place = to + k * kRows;
    int64_t r = 0;
    for (; r + kRows <= piece.rows; r += kRows, place += piece.columns * kRows) {
      std::memcpy(place, source + r, kRows * sizeof(float));
    }
    for (int64_t rest = r; rest < piece.rows; ++rest) place[rest - r] = source[rest];
  }
}

void pack(const Matrix& from, const Piece& piece, float* to) {
  if (from.column_step == 1) {
    pack_straight(from, piece, to);
  } else {
    pack_turned(from, piece, to);
  }
}

class PackedProduct {
 public:
  PackedProduct(const Matrix& a, const Matrix& b, int64_t M, int64_t K, int64_t N)
      : a_(a), b_(b), M_(M), K_(K), N_(N), block_(by_brgemm() ? kBrgemm : kPanels) {
    const int64_t parts = std::max<int64_t>(1, (K + block_.depth - 1) / block_.depth);
    depth_ = up_to((K + parts - 1) / parts, kStep);
    packs_a_ = by_brgemm() || a.column_step != 1;
  }

  int64_t floats() const { return floats_of_a() + floats_of_b() + at::get_num_threads() * floats_of_thread(); }

  /// out [M,N] (+)= a * b; `memory`: floats() of them.
  void run(float* out, int64_t out_step, bool add, float* memory) const {
    float* const packed_a = memory;
    float* const packed_b = packed_a + floats_of_a();
    float* const aside = packed_b + floats_of_b();
    for (int64_t k = 0; k < K_; k += depth_) {
      const Depth depth{k, std::min(depth_, K_ - k)};
      const int64_t packed_step = by_brgemm() ? depth.padded() : 0;  // woven
      for (int64_t n = 0; n < N_; n += kColumnsTogether) {
        const int64_t wide = std::min(kColumnsTogether, N_ - n), panels = up_to(wide, block_.columns) / block_.columns;
        pack_b(depth, n, wide, packed_b);
        for (int64_t m = 0; m < M_; m += kRowsTogether) {
          const int64_t high = std::min(kRowsTogether, M_ - m), blocks = up_to(high, block_.rows) / block_.rows;
          if (packs_a_) pack_a(depth, m, high, packed_a);
          each(blocks * panels, [&](int64_t task) {
            const int64_t row = task / panels * block_.rows, column = task % panels * block_.columns;
            multiply({.a = packs_a_ ? packed_a + row * depth.padded() : a_.at(m + row, k),
                      .b = packed_b + column * depth.padded(),
                      .out = out + (m + row) * out_step + n + column,
                      .a_step = packs_a_ ? packed_step : a_.row_step,
                      .out_step = out_step,
                      .rows = std::min(block_.rows, high - row),
                      .columns = std::min(block_.columns, wide - column),
                      .depth = by_brgemm() ? depth.padded() : depth.size,
                      .add = add || k > 0},
                     aside + at::get_thread_num() * floats_of_thread());
          });
        }
      }
    }
  }

 private:
  using Block = kernels::PanelProduct;  // brgemm's panels are wider
  struct Depth {
    int64_t begin, size;
    int64_t padded() const { return up_to(size, kStep); }
  };

  /// Rows that stand far apart are read a few at a time, one panel behind the other: as they stand in memory.
  void pack_b(const Depth& depth, int64_t n, int64_t wide, float* to) const {
    const int64_t panels = up_to(wide, block_.columns) / block_.columns;
    const int64_t few = b_.column_step == 1 ? kStep : depth.padded();
    each(depth.padded() / few * panels, [&](int64_t task) {
      const int64_t row = task / panels * few, column = task % panels * block_.columns;
      const Piece piece{
          depth.begin + row, n + column, std::min(few, depth.size - row), std::min(block_.columns, wide - column), few,
          block_.columns};
      pack(b_, piece, to + column * depth.padded() + row * block_.columns);
    });
  }

  void pack_a(const Depth& depth, int64_t m, int64_t high, float* to) const {
    each(up_to(high, block_.rows) / block_.rows, [&](int64_t i) {
      const int64_t row = i * block_.rows, rows = std::min(block_.rows, high - row);
      const Piece piece{m + row, depth.begin, rows, depth.size, up_to(rows, kStep), depth.padded()};
      by_brgemm() ? pack(a_, piece, to + row * depth.padded()) : weave(a_, piece, to + row * depth.padded());
    });
  }

  int64_t floats_of_a() const {
    const int64_t together = by_brgemm() ? kStep : kernels::kPanelRows;
    return packs_a_ ? up_to(std::min(M_, kRowsTogether), together) * depth_ : 0;
  }
  int64_t floats_of_b() const { return std::min(up_to(N_, block_.columns), kColumnsTogether) * depth_; }
  int64_t floats_of_thread() const { return by_brgemm() ? block_.rows * block_.columns : 0; }

  template <typename Task>
  static void each(int64_t count, const Task& task) {
    kernels::parallel_rows(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) task(i);
    });
  }

  static void multiply(const Block& block, float* aside) {
    by_brgemm() ? multiply_by_brgemm(block, aside) : kernels::table<float>().multiply_panel(block);
  }

  /// Where out has no room for the whole block it is made aside.
  static void multiply_by_brgemm(const Block& block, float* aside) {
    using at::native::cpublas::brgemm;
    constexpr int64_t kColumns = kBrgemm.columns;
    const int64_t padded = up_to(block.rows, kStep);
    if (padded == block.rows && block.columns == kColumns) {
      brgemm(block.rows, kColumns, block.depth, block.a_step, kColumns, block.out_step, block.add, block.a, block.b,
             block.out,
             /*is_vnni=*/false);
      return;
    }
    brgemm(padded, up_to(block.columns, kStep), block.depth, block.a_step, kColumns, kColumns, /*add_C=*/false, block.a,
           block.b, aside, /*is_vnni=*/false);
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t c = 0; c < block.columns; ++c) {
        float& to = block.out[r * block.out_step + c];
        to = aside[r * kColumns + c] + (block.add ? to : 0.0F);
      }
    }
  }

  Matrix a_, b_;
  int64_t M_, K_, N_;
  Blocking block_;
  int64_t depth_;  // of a packed piece
  bool packs_a_;   // else it is read where it stands
};

bool has_contiguous_side(const Tensor& x) { return x.stride(0) == 1 || x.stride(1) == 1; }

}  // namespace

namespace {

bool packs(const Tensor& x) {
  if (x.scalar_type() != at::kFloat || !on_cpu(x)) return false;
  static const bool quicker = kernels::instruction_set() != "SSE4.2" && !is_intel();
  return PackedProducts::made(quicker);
}

void multiply_onto(const Tensor& out, const Tensor& a, const Tensor& b, bool add) {
  if (!has_contiguous_side(a)) return multiply_onto(out, a.contiguous(), b, add);
  if (!has_contiguous_side(b)) return multiply_onto(out, a, b.contiguous(), add);
  PackedProduct product(matrix_of(a), matrix_of(b), a.size(0), a.size(1), b.size(1));
  const Tensor memory = at::empty({product.floats()}, out.options());
  if (out.is_meta()) return;
  product.run(write_of<float>(out), out.stride(0), add, write_of<float>(memory));
}

}  // namespace

bool packs_product(const Tensor& x, const ProductSize& size) {
  return packs(x) && std::min({size.rows, size.depth, size.columns}) >= kLeast;
}

bool packs_narrow_product(const Tensor& x, const ProductSize& size) {
  const int64_t least = std::min({size.rows, size.depth, size.columns});
  const int64_t most = std::max({size.rows, size.depth, size.columns});
  return packs(x) && least > 0 && size.rows * size.depth * size.columns / least / most >= kLeast;
}

void multiply_packed(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (bias.defined() && !out.is_meta()) out.copy_(bias.expand(out.sizes()));
  multiply_onto(out, a, b, bias.defined());
}

void add_packed(const Tensor& out, const Tensor& a, const Tensor& b) { multiply_onto(out, a, b, /*add=*/true); }

}  // namespace lockstep::fn
