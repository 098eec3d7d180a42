// The kernels of every instruction set that this processor has, beside each other: only one of them is what other tests run.
#include "lockstep/tensor/kernels.h"

#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/kernels_tables.h"
#include "lockstep/tensor/test_numbers.h"

namespace lockstep {
namespace {

using kernels::Bf16, kernels::F16, kernels::Table;

template <typename T>
constexpr at::ScalarType kDtype = at::kFloat;
template <>
constexpr at::ScalarType kDtype<Bf16> = at::kBFloat16;
template <>
constexpr at::ScalarType kDtype<F16> = at::kHalf;

template <typename T>
std::vector<std::pair<std::string, const Table<T>*>> tables_here(const Table<T>& v2, const Table<T>& v3,
                                                                 const Table<T>& v4) {
  std::vector<std::pair<std::string, const Table<T>*>> tables{{"SSE4.2", &v2}};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) tables.emplace_back("AVX2", &v3);
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) tables.emplace_back("AVX-512", &v4);
  return tables;
}

/// What a table makes of the same numbers, by name.
template <typename T>
class Made {
 public:
  using Results = std::vector<std::pair<std::string, Tensor>>;

  Made(const Table<T>& table, int64_t rows, int64_t dim) : table_(table), rows_(rows), dim_(dim) {}

  Results all() {
    norms();
    gates();
    heads();
    loss();
    one_query();
    tiles();
    layouts();
    return std::move(results_);
  }

 private:
  /// Of kDtype<T>, the same for every table.
  static Tensor numbers(at::IntArrayRef sizes, const std::string& name) { return test::drawn(sizes, name, kDtype<T>); }
  static Tensor wide(at::IntArrayRef sizes, const std::string& name) { return numbers(sizes, name).to(at::kFloat); }
  static Tensor empty(at::IntArrayRef sizes) { return at::zeros(sizes, kDtype<T>); }
  static Tensor empty_wide(at::IntArrayRef sizes) { return at::zeros(sizes, at::kFloat); }
  static const T* in(const Tensor& x) { return fn::read_of<T>(x); }
  static T* out(const Tensor& x) { return fn::write_of<T>(x); }
  static const float* in_wide(const Tensor& x) { return fn::read_of<float>(x); }
  static float* out_wide(const Tensor& x) { return fn::write_of<float>(x); }
  void keep(const std::string& name, const Tensor& made) { results_.emplace_back(name, made.to(at::kFloat)); }

  void norms() {
    const Tensor x = numbers({rows_, dim_}, "x"), w = numbers({dim_}, "w"), g = numbers({rows_, dim_}, "g");
    const Tensor y = empty({rows_, dim_}), rstd = empty_wide({rows_}), dx = empty({rows_, dim_});
    const Tensor dw = empty_wide({dim_}), dots = empty_wide({rows_});
    table_.rms_norm(in(x), in(w), out(y), out_wide(rstd), rows_, dim_, 1e-6F);
    table_.rms_norm_backward(in(g), in(x), in(w), in_wide(rstd), out(dx), out_wide(dw), rows_, dim_);
    table_.row_dots(in(g), dim_, in(x), dim_, out_wide(dots), rows_, dim_);
    keep("norm", y);
    keep("1 / deviation", rstd);
    keep("gradient of a norm", dx);
    keep("gradient of its weight", dw);
    keep("dots of rows", dots);
  }

  void gates() {
    const Tensor gate_up = numbers({rows_, 2 * dim_}, "gate"), g = numbers({rows_, dim_}, "g");
    const Tensor y = empty({rows_, dim_}), dx = empty({rows_, 2 * dim_});
    table_.swiglu(in(gate_up), out(y), rows_, dim_);
    table_.swiglu_backward(in(g), in(gate_up), out(dx), rows_, dim_);
    keep("gate", y);
    keep("gradient of a gate", dx);
  }

  void heads() {
    const kernels::HeadLayout layout{.heads = 3, .kv_heads = 2, .head_dim = dim_ / 2 * 2, .copies = 2};
    const int64_t H = layout.head_dim;
    const Tensor qkv = numbers({rows_, layout.width()}, "qkv"), cos = wide({rows_, H}, "c"),
                 sin = wide({rows_, H}, "s");
    const Tensor q = empty({rows_, 3 * H}), k = empty({rows_, 4 * H}), v = empty({rows_, 4 * H});
    const Tensor back = empty({rows_, layout.width()});
    table_.split_heads(in(qkv), in_wide(cos), in_wide(sin), out(q), out(k), out(v), rows_, layout);
    table_.join_heads(in(q), in(k), in(v), in_wide(cos), in_wide(sin), out(back), rows_, layout);
    keep("q", q);
    keep("k", k);
    keep("v", v);
    keep("gradient of qkv", back);
  }

  void loss() {
    const Tensor logits = numbers({rows_, dim_}, "logits"), losses = at::zeros({rows_}, at::kDouble);
    const Tensor targets = at::zeros({rows_}, at::kLong), hits = at::zeros({rows_}, at::kByte);
    auto* target = static_cast<int64_t*>(targets.mutable_data_ptr());
    for (int64_t r = 0; r < rows_; ++r) target[r] = r == 1 ? -100 : r * 7 % dim_;
    const Tensor scratch = empty_wide({dim_});
    table_.cross_entropy(out(logits), target, static_cast<double*>(losses.mutable_data_ptr()),
                         static_cast<uint8_t*>(hits.mutable_data_ptr()), rows_, dim_, 0.5F, true, out_wide(scratch));
    keep("losses", losses);
    keep("hits", hits);
    keep("gradient of logits", logits);
  }

  void one_query() {
    const Tensor q = numbers({5, dim_}, "q"), keys = numbers({rows_ + 16, dim_}, "k"),
                 values = numbers({rows_ + 16, dim_}, "v");
    const Tensor scratch = empty_wide({5, rows_ + 16 + dim_}), found = empty({5, dim_});
    for (int64_t group = 1; group <= 5; ++group) {
      table_.attend_one({.q = in(q),
                         .keys = in(keys),
                         .values = in(values),
                         .out = out(found),
                         .scratch = out_wide(scratch),
                         .group = group,
                         .length = rows_ + 16,
                         .dim = dim_});
      keep("one query of " + std::to_string(group) + " heads", found.narrow(0, 0, group).clone());
    }
  }

  void tiles() {
    constexpr int64_t kKeys = 64, kQueries = 32;
    const kernels::TileShape shape{.keys = kKeys,
                                   .queries = kQueries,
                                   .key_limit = 50,
                                   .diagonal = 20,
                                   .causal = true,
                                   .window = 40,
                                   .scale = 0.3F};
    const Tensor scores = wide({kKeys, kQueries}, "s"), dprobs = wide({kKeys, kQueries}, "d");
    const Tensor most = at::full({kQueries}, -1e30, at::kFloat), sums = empty_wide({kQueries}),
                 shrink = empty_wide({kQueries});
    const Tensor probs = empty({kKeys, kQueries}), lse = wide({kQueries}, "l").add(4.0), dots = wide({kQueries}, "o");
    table_.softmax_tile({.scores = in_wide(scores),
                         .most = out_wide(most),
                         .sums = out_wide(sums),
                         .shrink = out_wide(shrink),
                         .probs = out(probs),
                         .shape = shape});
    keep("probabilities", probs);
    keep("largest", most);
    keep("sums", sums);
    const Tensor back = empty({kKeys, kQueries}), dscores = empty({kKeys, kQueries}), paired = empty({kKeys, kQueries});
    table_.attention_tile({.scores = in_wide(scores),
                           .dprobs = in_wide(dprobs),
                           .lse = in_wide(lse),
                           .dots = in_wide(dots),
                           .probs = out(back),
                           .dscores = out(dscores),
                           .dscores_paired = out(paired),
                           .shape = shape});
    keep("probabilities again", back);
    keep("gradient of scores", dscores);
    keep("the same in pairs", paired);
  }

  void layouts() {
    constexpr int64_t kRows = 48, kColumns = 64, kPair = 4 / sizeof(T);
    const Tensor x = numbers({kRows, kColumns}, "x"), turned = empty({kColumns, kRows}),
                 plain = empty({kColumns, kRows});
    const auto words = [](const Tensor& t) { return static_cast<uint32_t*>(const_cast<void*>(t.const_data_ptr())); };
    table_.transpose_words(words(x), kColumns / kPair, words(turned), kRows, kRows, kColumns / kPair);
    table_.unpair_rows(words(turned), out(plain), kColumns / kPair, kRows);
    EXPECT_TRUE(plain.equal(x.t())) << "transposed";
    const Tensor paired = empty({kRows, kColumns});
    table_.pair_rows(in(x), kColumns, out(paired), kRows, kColumns);
    keep("rows in pairs", paired);
    const Tensor from = wide({kColumns, kRows}, "f"), to = empty({kRows - 3, kColumns});
    table_.store_transposed(in_wide(from), kRows, out(to), kColumns, kRows - 3, kColumns);
    EXPECT_TRUE(to.equal(from.t().narrow(0, 0, kRows - 3).to(kDtype<T>))) << "stored transposed";
    const Tensor by = wide({kRows}, "b"), scaled = from.clone();
    table_.scale_columns(out_wide(scaled), in_wide(by), kColumns, kRows);
    EXPECT_TRUE(scaled.equal(from.mul(by))) << "scaled";
  }

  const Table<T>& table_;
  int64_t rows_, dim_;
  Results results_;
};

template <typename T>
void expect_the_same(const Table<T>& v2, const Table<T>& v3, const Table<T>& v4) {
  // A number of 16 bits may be rounded to its neighbour.
  const double tolerance = sizeof(T) == 4 ? 2e-5 : kDtype<T> == at::kHalf ? 2e-3 : 1e-2;
  for (const auto& [rows, dim] : {std::pair<int64_t, int64_t>{5, 64}, {3, 76}, {2, 30}, {17, 16}}) {
    const auto tables = tables_here(v2, v3, v4);
    const auto wanted = Made<T>(*tables[0].second, rows, dim).all();
    for (const auto& [name, table] : std::span(tables).subspan(1)) {
      const auto got = Made<T>(*table, rows, dim).all();
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(at::allclose(got[i].second, wanted[i].second, tolerance, tolerance))
            << wanted[i].first << " with " << name << ", " << rows << " x " << dim << " of " << at::toString(kDtype<T>)
            << ": off by " << got[i].second.sub(wanted[i].second).abs().max().template item<double>();
      }
    }
  }
}

TEST(Kernels, OfEveryInstructionSetMakeTheSame) {
  expect_the_same(kernels::table_v2_f32(), kernels::table_v3_f32(), kernels::table_v4_f32());
  expect_the_same(kernels::table_v2_bf16(), kernels::table_v3_bf16(), kernels::table_v4_bf16());
  expect_the_same(kernels::table_v2_f16(), kernels::table_v3_f16(), kernels::table_v4_f16());
}

/// Every number of rows that may be left over, whole and cut panels, beside what is not to be touched.
TEST(Kernels, MultiplyAPanelAsFloat64Does) {
  constexpr int64_t kColumns = kernels::kPanelColumns, kRound = 3;
  for (const auto& [name, table] :
       tables_here(kernels::table_v2_f32(), kernels::table_v3_f32(), kernels::table_v4_f32())) {
    const int64_t together = table->panel_rows, most = 2 * together + 1;
    for (const int64_t depth : {1, 7, 64}) {
      const Tensor wide = test::drawn({depth, kColumns + kRound}, "1"), b = wide.narrow(1, 0, kColumns).contiguous();
      for (int64_t rows = 1; rows <= most; ++rows) {
        const Tensor a = test::drawn({rows, depth + kRound}, "2");
        Tensor woven = at::zeros({most + together, depth});
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t piece = r / together * together;
          woven.narrow(0, piece, together)
              .reshape({depth, together})
              .select(1, r - piece)
              .copy_(a[r].narrow(0, 0, depth));
        }
        for (const int64_t columns : {kColumns, kColumns - 5}) {
          for (const bool add : {false, true}) {
            const Tensor before = test::drawn({rows + 1, kColumns + kRound}, "3");
            Tensor wanted = before.to(at::kDouble);
            Tensor part = wanted.narrow(0, 0, rows).narrow(1, 0, columns);
            const Tensor product = a.narrow(1, 0, depth).to(at::kDouble).mm(b.to(at::kDouble)).narrow(1, 0, columns);
            add ? part.add_(product) : part.copy_(product);
            for (const bool weave : {false, true}) {
              Tensor out = before.clone();
              table->multiply_panel({.a = fn::read_of<float>(weave ? woven : a),
                                     .b = fn::read_of<float>(weave ? wide : b),
                                     .out = fn::write_of<float>(out),
                                     .a_step = weave ? 0 : depth + kRound,
                                     .b_step = weave ? kColumns + kRound : kColumns,
                                     .out_step = kColumns + kRound,
                                     .rows = rows,
                                     .columns = columns,
                                     .depth = depth,
                                     .add = add});
              EXPECT_TRUE(at::allclose(out.to(at::kDouble), wanted, 1e-5, 1e-5))
                  << name << ": " << rows << " rows, depth " << depth << ", " << columns << " columns"
                  << (add ? ", added" : "") << (weave ? ", woven" : "");
            }
          }
        }
      }
    }
  }
}

/// Anywhere in a sequence, any number of elements, to the edges of what a threshold can be.
TEST(Kernels, DropWhatSplitmix64Says) {
  const auto expect_right = [](const std::string& name, const auto& table, uint64_t key, uint64_t first, int64_t n) {
    for (const uint32_t threshold : {0U, 1U, 0x0CCCCCCDU, 0x80000000U, 0xFFFFFFFFU}) {
      const Tensor x = test::drawn({n + 1}, "4");
      Tensor y = at::full({n + 1}, 77.0);
      table.drop({.x = fn::read_of<float>(x),
                  .y = fn::write_of<float>(y),
                  .n = n,
                  .key = key,
                  .first = first,
                  .threshold = threshold,
                  .scale = 1.5F});
      Tensor wanted = x.mul(1.5);
      for (int64_t i = 0; i < n; ++i) {
        uint64_t z = key + (first + static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ULL;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        z ^= z >> 31;
        if ((z >> 32) < threshold) wanted[i] = 0;
      }
      wanted[n] = 77.0;
      EXPECT_TRUE(y.equal(wanted)) << name << ": key " << key << ", from " << first << ", " << n
                                   << " numbers, threshold " << threshold;
    }
  };
  for (const auto& [name, table] :
       tables_here(kernels::table_v2_f32(), kernels::table_v3_f32(), kernels::table_v4_f32())) {
    for (const int64_t n : {1, 15, 16, 61}) {
      expect_right(name, *table, 3, 0, n);
      expect_right(name, *table, 0xFFFFFFFFFFFFFFF7ULL, 16384, n);
      expect_right(name, *table, 0x8000000000000000ULL, 0xFFFFFFFFULL, n);
    }
  }
}

/// All 65,536 numbers through each instruction set's kernels, there and back.
TEST(Kernels, WidenAndRoundFloat16AsLibTorchDoes) {
  Tensor every = at::zeros({65536}, at::kHalf);
  auto* bits = static_cast<uint16_t*>(every.mutable_data_ptr());
  for (int i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
  const Tensor finite = every.masked_select(every.to(at::kFloat).isfinite()).contiguous();
  // Halves of every step between two neighbours, and a hair to either side: where rounding decides.
  const Tensor wide = finite.to(at::kFloat);
  const Tensor exact = at::cat({wide, wide.mul(1.0 + 0x1p-12), wide.mul(1.0 + 0x1p-11), wide.mul(1.0 + 0x1.8p-11),
                                wide.add(0x1p-25), wide.add(0x1.8p-25), wide.mul(1.5), wide.mul(1e-5)});
  const int64_t n = exact.numel();
  const float one = 1.0F;
  for (const auto& [name, table] :
       tables_here(kernels::table_v2_f16(), kernels::table_v3_f16(), kernels::table_v4_f16())) {
    SCOPED_TRACE(name);
    Tensor rounded = at::zeros({n}, at::kHalf);
    table->store_rows(fn::read_of<float>(exact), fn::write_of<kernels::F16>(rounded), n, 1, n);
    EXPECT_TRUE(rounded.equal(exact.to(at::kHalf)));
    Tensor back = at::zeros({finite.numel()}, at::kHalf);
    table->multiply_rows({.x = &one,
                          .w = fn::read_of<kernels::F16>(finite),
                          .bias = nullptr,
                          .y = fn::write_of<kernels::F16>(back),
                          .w_stride = 1,
                          .y_stride = finite.numel(),
                          .rows = 1,
                          .outputs = finite.numel(),
                          .dim = 1});
    EXPECT_TRUE(back.equal(finite));
    const Tensor wild = at::full({1, 16}, std::numeric_limits<double>::infinity(), at::kHalf);
    for (const Tensor& odd : {wild, wild.neg(), wild.sub(wild)}) {
      EXPECT_FALSE(table->all_finite(fn::read_of<kernels::F16>(odd), 16));
      Tensor same = at::zeros({1, 16}, at::kHalf);
      const Tensor from = odd.to(at::kFloat);
      table->store_rows(fn::read_of<float>(from), fn::write_of<kernels::F16>(same), 16, 1, 16);
      EXPECT_TRUE(same.equal(odd) || (same.isnan().all().item<bool>() && odd.isnan().all().item<bool>()));
    }
    EXPECT_TRUE(table->all_finite(fn::read_of<kernels::F16>(finite), finite.numel()));
  }
}

}  // namespace
}  // namespace lockstep
