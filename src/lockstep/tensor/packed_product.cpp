// M rows, K summed over, N columns. A block of a has kRows rows, a panel of b kColumns columns, both kDepth deep at most.
#include "lockstep/tensor/packed_product.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/machine.h"
#include "lockstep/tensor/fn_common.h"

namespace lockstep::fn {
namespace {

constexpr int64_t kRows = 128, kColumns = 64;
// A sum goes over so many numbers at most before it is added to the result: a longer one loses more bits.
constexpr int64_t kDepth = 512;
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
Matrix matrix_of(const Tensor& x) { return {read_of<float>(x), x.stride(0), x.stride(1)}; }

/// [rows, columns] from (row, column) on -> `to` [padded_rows, padded_columns], zeros behind.
struct Piece {
  int64_t row, column, rows, columns, padded_rows, padded_columns;
};

void pack_straight(const Matrix& from, const Piece& piece, float* to) {
  for (int64_t r = 0; r < piece.rows; ++r) {
    float* const row = to + r * piece.padded_columns;
    std::copy_n(from.at(piece.row + r, piece.column), piece.columns, row);
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

void pack(const Matrix& from, const Piece& piece, float* to) {
  if (from.column_step == 1) {
    pack_straight(from, piece, to);
  } else {
    pack_turned(from, piece, to);
  }
}

class PackedProduct {
 public:
  PackedProduct(int64_t M, int64_t K, int64_t N) : M_(M), K_(K), N_(N) {
    const int64_t parts = std::max<int64_t>(1, (K + kDepth - 1) / kDepth);
    depth_ = up_to((K + parts - 1) / parts, kStep);
  }

  int64_t floats_of_a() const { return std::min(up_to(M_, kStep), kRowsTogether) * depth_; }
  int64_t floats_of_b() const { return std::min(up_to(N_, kColumns), kColumnsTogether) * depth_; }
  static constexpr int64_t kFloatsOfThread = kRows * kColumns;

  /// `memory`: of a, of b, then of each thread.
  void run(const Matrix& a, const Matrix& b, float* out, int64_t out_step, bool add, float* memory) {
    float* const packed_a = memory;
    float* const packed_b = packed_a + floats_of_a();
    float* const aside = packed_b + floats_of_b();
    for (int64_t k = 0; k < K_; k += depth_) {
      const int64_t deep = std::min(depth_, K_ - k), padded = up_to(deep, kStep);
      for (int64_t n = 0; n < N_; n += kColumnsTogether) {
        const int64_t wide = std::min(kColumnsTogether, N_ - n), panels = up_to(wide, kColumns) / kColumns;
        each(panels, [&](int64_t p) {
          const int64_t columns = std::min(kColumns, wide - p * kColumns);
          pack(b, {k, n + p * kColumns, deep, columns, padded, kColumns}, packed_b + p * kColumns * padded);
        });
        for (int64_t m = 0; m < M_; m += kRowsTogether) {
          const int64_t high = std::min(kRowsTogether, M_ - m), blocks = up_to(high, kRows) / kRows;
          each(blocks, [&](int64_t i) {
            const int64_t rows = std::min(kRows, high - i * kRows);
            pack(a, {m + i * kRows, k, rows, deep, up_to(rows, kStep), padded}, packed_a + i * kRows * padded);
          });
          each(blocks * panels, [&](int64_t task) {
            const int64_t i = task / panels, p = task % panels;
            multiply_block({.a = packed_a + i * kRows * padded,
                            .b = packed_b + p * kColumns * padded,
                            .out = out + (m + i * kRows) * out_step + n + p * kColumns,
                            .out_step = out_step,
                            .rows = std::min(kRows, high - i * kRows),
                            .columns = std::min(kColumns, wide - p * kColumns),
                            .depth = padded,
                            .add = add || k > 0},
                           aside + at::get_thread_num() * kFloatsOfThread);
          });
        }
      }
    }
  }

 private:
  struct Block {
    const float *a, *b;
    float* out;
    int64_t out_step, rows, columns, depth;
    bool add;
  };

  template <typename Task>
  static void each(int64_t count, const Task& task) {
    kernels::parallel_rows(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) task(i);
    });
  }

  /// Where out has no room for the whole block it is made aside.
  static void multiply_block(const Block& block, float* aside) {
    using at::native::cpublas::brgemm;
    const int64_t padded = up_to(block.rows, kStep);
    if (padded == block.rows && block.columns == kColumns) {
      brgemm(block.rows, kColumns, block.depth, block.depth, kColumns, block.out_step, block.add, block.a, block.b,
             block.out,
             /*is_vnni=*/false);
      return;
    }
    brgemm(padded, up_to(block.columns, kStep), block.depth, block.depth, kColumns, kColumns, /*add_C=*/false, block.a,
           block.b, aside, /*is_vnni=*/false);
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t c = 0; c < block.columns; ++c) {
        float& to = block.out[r * block.out_step + c];
        to = aside[r * kColumns + c] + (block.add ? to : 0.0F);
      }
    }
  }

  int64_t M_, K_, N_;
  int64_t depth_;  // of a packed piece
};

bool has_contiguous_side(const Tensor& x) { return x.stride(0) == 1 || x.stride(1) == 1; }

}  // namespace

namespace {

bool packs(const Tensor& x) {
  if (x.scalar_type() != at::kFloat || !on_cpu(x)) return false;
  static const bool quicker = kernels::instruction_set() == "AVX-512" && !is_intel();
  return PackedProducts::made(quicker);
}

void multiply_onto(const Tensor& out, const Tensor& a, const Tensor& b, bool add) {
  if (!has_contiguous_side(a)) return multiply_onto(out, a.contiguous(), b, add);
  if (!has_contiguous_side(b)) return multiply_onto(out, a, b.contiguous(), add);
  PackedProduct product(a.size(0), a.size(1), b.size(1));
  const int64_t floats =
      product.floats_of_a() + product.floats_of_b() + at::get_num_threads() * PackedProduct::kFloatsOfThread;
  const Tensor memory = at::empty({floats}, out.options());
  if (out.is_meta()) return;
  product.run(matrix_of(a), matrix_of(b), write_of<float>(out), out.stride(0), add, write_of<float>(memory));
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
