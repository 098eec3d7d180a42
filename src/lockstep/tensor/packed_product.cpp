// M rows, K summed over, N columns. A block of a has kBlockRows rows, a panel of b kPanelColumns, both kDepth deep at most.
#include "lockstep/tensor/packed_product.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/machine.h"
#include "lockstep/tensor/fn_common.h"

namespace lockstep::fn {
namespace {

using kernels::kPanelColumns;

constexpr int64_t kDepth = kernels::kPanelDepth;
constexpr int64_t kBlockRows = 96;  // a multiple of what every instruction set takes together
constexpr int64_t kRowsTogether = 960, kColumnsTogether = 1024;  // packed at a time: 1.5 MiB of each
constexpr int64_t kStep = 16;        // of rows of b that are packed in turn, and of the depth of a panel in memory
constexpr int64_t kLeast = 32;       // of M, K and N: with fewer, LibTorch is as quick or quicker
constexpr int64_t kFewColumns = 64;  // up to so many take less time than a needs to come from memory

int64_t panel_rows() { return kernels::table<float>().panel_rows; }

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
template <int64_t kTogether>
void weave_rows(const Matrix& from, const Piece& piece, float* to) {
  for (int64_t k = 0; k < piece.columns; ++k) {
    const float* const source = from.at(piece.row, piece.column + k);
    float* place = to + k * kTogether;
    int64_t r = 0;
    for (; r + kTogether <= piece.rows; r += kTogether, place += piece.columns * kTogether) {
      std::memcpy(place, source + r, kTogether * sizeof(float));
    }
    for (int64_t rest = r; rest < piece.rows; ++rest) place[rest - r] = source[rest];
  }
}

void weave(const Matrix& from, const Piece& piece, float* to) {
  panel_rows() == 8 ? weave_rows<8>(from, piece, to) : weave_rows<6>(from, piece, to);
}

void pack(const Matrix& from, const Piece& piece, float* to) {
  if (from.column_step == 1) {
    pack_straight(from, piece, to);
  } else {
    pack_turned(from, piece, to);
  }
}

/// AddedRanks as its numbers stand in memory.
struct Ranks {
  const float *left = nullptr, *right = nullptr;
  int64_t left_step = 0, right_step = 0;
  std::span<const RankColumns> columns;

  explicit Ranks(const AddedRanks* added) {
    if (added == nullptr || added->left.is_meta()) return;
    left = read_of<float>(added->left);
    right = read_of<float>(added->right);
    left_step = added->left.stride(0);
    right_step = added->right.stride(0);
    columns = added->columns;
  }

  /// Beside the panel of `product`: all ranks of columns that are in it, with zeros for the others of the panel.
  void stand_beside(kernels::PanelProduct<float, float>& product, int64_t row, int64_t column) const {
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
    for (const auto& one : columns) {
      if (one.first >= column + kPanelColumns || one.first + one.count <= column) continue;
      begin = std::min(begin, one.begin);
      end = std::max(end, one.begin + one.rank);
    }
    if (end <= begin) return;
    product.left = left + row * left_step + begin;
    product.right = right + begin * right_step + column;
    product.left_step = left_step;
    product.right_step = right_step;
    product.ranks = end - begin;
  }
};

class PackedProduct {
 public:
  PackedProduct(const Matrix& a, const Matrix& b, int64_t M, int64_t K, int64_t N)
      : a_(a),
        b_(b),
        M_(M),
        K_(K),
        N_(N),
        weaves_a_(a.column_step != 1),
        reads_b_(b.column_step == 1 && M <= panel_rows()),
        depth_(packed_depth(K)) {}

  int64_t floats() const { return floats_of_a() + floats_of_b(); }

  /// out [M,N] (+)= a * b; `memory`: floats() of them.
  void run(float* out, int64_t out_step, bool add, const Ranks& ranks, float* memory) const {
    float* const woven_a = memory;
    float* const packed_b = woven_a + floats_of_a();
    for (int64_t k = 0; k < K_; k += depth_) {
      const Depth depth{k, std::min(depth_, K_ - k)};
      for (int64_t n = 0; n < N_; n += kColumnsTogether) {
        const Columns columns = columns_from(n);
        pack_b(depth, columns, packed_b);
        for (int64_t m = 0; m < M_; m += kRowsTogether) {
          const int64_t high = std::min(kRowsTogether, M_ - m);
          if (weaves_a_) weave_a(depth, m, high, woven_a);
          each(up_to(high, kBlockRows) / kBlockRows * columns.panels(), [&](int64_t task) {
            const int64_t row = task / columns.panels() * kBlockRows;
            const int64_t column = task % columns.panels() * kPanelColumns;
            const bool packed = column >= columns.read;
            kernels::PanelProduct<float, float> product{
                .a = weaves_a_ ? woven_a + row * depth.size : a_.at(m + row, k),
                .b = packed ? packed_b + (column - columns.read) * depth.padded() : b_.at(k, n + column),
                .out = out + (m + row) * out_step + n + column,
                .a_step = weaves_a_ ? 0 : a_.row_step,
                .b_step = packed ? kPanelColumns : b_.row_step,
                .out_step = out_step,
                .rows = std::min(kBlockRows, high - row),
                .columns = std::min(kPanelColumns, columns.size - column),
                .depth = depth.size,
                .add = add || k > 0,
                .far = N_ <= kFewColumns};
            if (k + depth_ >= K_) ranks.stand_beside(product, m + row, n + column);
            kernels::table<float>().multiply_panel(product);
          });
        }
      }
    }
  }

 private:
  struct Depth {
    int64_t begin, size;
    int64_t padded() const { return up_to(size, kStep); }
  };
  struct Columns {
    int64_t begin, size;
    int64_t read;  // so many stand where they are: whole panels
    int64_t panels() const { return up_to(size, kPanelColumns) / kPanelColumns; }
  };

  Columns columns_from(int64_t n) const {
    const int64_t size = std::min(kColumnsTogether, N_ - n);
    return {n, size, reads_b_ ? size / kPanelColumns * kPanelColumns : 0};
  }

  /// Rows that stand far apart are read a few at a time, one panel behind the other: as they stand in memory.
  void pack_b(const Depth& depth, const Columns& columns, float* to) const {
    const int64_t panels = columns.panels() - columns.read / kPanelColumns;
    const int64_t few = b_.column_step == 1 ? kStep : depth.padded();
    each(depth.padded() / few * panels, [&](int64_t task) {
      const int64_t row = task / panels * few, at = task % panels * kPanelColumns, column = columns.read + at;
      const Piece piece{depth.begin + row,
                        columns.begin + column,
                        std::min(few, depth.size - row),
                        std::min(kPanelColumns, columns.size - column),
                        few,
                        kPanelColumns};
      pack(b_, piece, to + at * depth.padded() + row * kPanelColumns);
    });
  }

  void weave_a(const Depth& depth, int64_t m, int64_t high, float* to) const {
    each(up_to(high, kBlockRows) / kBlockRows, [&](int64_t i) {
      const int64_t row = i * kBlockRows, rows = std::min(kBlockRows, high - row);
      weave(a_, {m + row, depth.begin, rows, depth.size, rows, depth.size}, to + row * depth.size);
    });
  }

  int64_t floats_of_a() const { return weaves_a_ ? up_to(std::min(M_, kRowsTogether), panel_rows()) * depth_ : 0; }
  int64_t floats_of_b() const {
    const Columns columns = reads_b_ ? columns_from(N_ / kColumnsTogether * kColumnsTogether) : columns_from(0);
    return (up_to(columns.size, kPanelColumns) - columns.read) * depth_;
  }

  template <typename Task>
  static void each(int64_t count, const Task& task) {
    kernels::parallel_rows(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) task(i);
    });
  }

  Matrix a_, b_;
  int64_t M_, K_, N_;
  bool weaves_a_;  // else it is read where it stands
  bool reads_b_;   // likewise, but for its last columns: it would be packed to be read once
  int64_t depth_;  // of a packed piece
};

bool has_contiguous_side(const Tensor& x) { return x.stride(0) == 1 || x.stride(1) == 1; }

}  // namespace

namespace {

void multiply_onto(const Tensor& out, const Tensor& a, const Tensor& b, bool add, const AddedRanks* added) {
  if (!has_contiguous_side(a)) return multiply_onto(out, a.contiguous(), b, add, added);
  if (!has_contiguous_side(b)) return multiply_onto(out, a, b.contiguous(), add, added);
  PackedProduct product(matrix_of(a), matrix_of(b), a.size(0), a.size(1), b.size(1));
  const Tensor memory = at::empty({product.floats()}, out.options());
  if (out.is_meta()) return;
  product.run(write_of<float>(out), out.stride(0), add, Ranks(added), write_of<float>(memory));
}

}  // namespace

int64_t packed_depth(int64_t depth) {
  const int64_t parts = std::max<int64_t>(1, (depth + kDepth - 1) / kDepth);
  return up_to((depth + parts - 1) / parts, kStep);
}

bool multiplies_by_own_kernels(const Tensor& x) {
  if (x.scalar_type() != at::kFloat || !on_cpu(x)) return false;
  static const bool quicker = kernels::instruction_set() != "SSE4.2" && !is_intel();
  return PackedProducts::made(quicker);
}

bool packs_product(const Tensor& x, const ProductSize& size) {
  return multiplies_by_own_kernels(x) && std::min({size.rows, size.depth, size.columns}) >= kLeast;
}

bool packs_narrow_product(const Tensor& x, const ProductSize& size) {
  const int64_t least = std::min({size.rows, size.depth, size.columns});
  const int64_t most = std::max({size.rows, size.depth, size.columns});
  return multiplies_by_own_kernels(x) && least > 0 && size.rows * size.depth * size.columns / least / most >= kLeast;
}

void multiply_packed(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias, const AddedRanks* added) {
  if (bias.defined() && !out.is_meta()) out.copy_(bias.expand(out.sizes()));
  multiply_onto(out, a, b, bias.defined(), added);
}

void add_packed(const Tensor& out, const Tensor& a, const Tensor& b) {
  multiply_onto(out, a, b, /*add=*/true, /*added=*/nullptr);
}

}  // namespace lockstep::fn
