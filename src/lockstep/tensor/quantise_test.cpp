// Codes of few bits: parts of a matrix' bytes are those of the whole, values are as near as their codes allow, and what a
// device composes is what the host's loop gives. Whether they are bitsandbytes' own bytes is looked at in tests/hf_qlora_test.py.
#include "lockstep/tensor/quantise.h"

#include <cmath>
#include <random>
#include <vector>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

struct Case {
  QuantFormat format;
  Shape shape;
};

std::vector<Case> cases() {
  const auto format = [](QuantKind kind, bool nested, Dtype rounded) { return QuantFormat{kind, nested, rounded}; };
  return {{format(QuantKind::kNf4, false, Dtype::kF32), {3, 50}},
          {format(QuantKind::kNf4, true, Dtype::kBF16), {400, 131}},
          {format(QuantKind::kFp4, false, Dtype::kF16), {64, 64}},
          {format(QuantKind::kFp4, true, Dtype::kF32), {9, 9}},
          {format(QuantKind::kInt8, false, Dtype::kF32), {7, 33}},
          {format(QuantKind::kNone, false, Dtype::kBF16), {5, 13}}};
}

std::vector<float> random_values(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& value : out) value = normal(random);
  return out;
}

ReadValues reader(const std::vector<float>& values) {
  return
      [&values](int64_t begin, std::span<float> out) { std::copy_n(values.begin() + begin, out.size(), out.begin()); };
}

std::vector<uint8_t> bytes_of(const Case& one, const std::vector<float>& values) {
  std::vector<uint8_t> out(static_cast<size_t>(QuantLayout::of(one.format, one.shape).bytes));
  quantise(one.format, one.shape, reader(values), 0, out);
  return out;
}

Tensor unpacked(const Case& one, std::vector<uint8_t>& bytes, Dtype dtype) {
  const Tensor out = empty({numel_of(one.shape)}, dtype);
  unpack(one.format, one.shape, view_memory(bytes.data(), {static_cast<int64_t>(bytes.size())}, Dtype::kU8), out);
  return out;
}

TEST(Quantise, AnyPartOfTheBytesIsAsInTheWhole) {
  std::mt19937_64 random(3);
  for (const Case& one : cases()) {
    const auto values = random_values(numel_of(one.shape), 5);
    const auto whole = bytes_of(one, values);
    for (int turn = 0; turn < 20; ++turn) {
      const size_t begin = random() % whole.size(), size = 1 + random() % (whole.size() - begin);
      std::vector<uint8_t> part(size);
      quantise(one.format, one.shape, reader(values), static_cast<int64_t>(begin), part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin)))
          << quant_kind_name(one.format.kind) << " [" << begin << ", +" << size << ")";
    }
  }
}

TEST(Quantise, ValuesAreAsNearAsTheirCodesAllow) {
  for (const Case& one : cases()) {
    const auto values = random_values(numel_of(one.shape), 7);
    auto bytes = bytes_of(one, values);
    const Tensor found = unpacked(one, bytes, Dtype::kF32);
    const int64_t each = QuantLayout::of(one.format, one.shape).per_scale;
    for (int64_t i = 0; i < found.numel(); ++i) {
      float most = 0;  // of the block or row
      for (int64_t k = i / each * each; k < std::min(found.numel(), (i / each + 1) * each); ++k) {
        most = std::max(most, std::fabs(values[static_cast<size_t>(k)]));
      }
      const double widest = one.format.kind == QuantKind::kInt8   ? 0.5 / 127 + 1e-3
                            : one.format.kind == QuantKind::kNone ? 0.004
                            : one.format.kind == QuantKind::kFp4  ? 1.0 / 6
                                                                  : 0.16;
      const double slack = one.format.nested ? 0.05 : 1e-2;
      ASSERT_LE(std::fabs(found.data_ptr<float>()[i] - values[static_cast<size_t>(i)]), (widest + slack) * most)
          << quant_kind_name(one.format.kind) << " element " << i;
    }
  }
}

TEST(Quantise, ZerosStayZerosAndTheLargestStaysItself) {
  const Case one{{.kind = QuantKind::kNf4}, {2, 64}};
  std::vector<float> values(128, 0.0F);
  values[70] = -0.5F;
  auto bytes = bytes_of(one, values);
  const Tensor found = unpacked(one, bytes, Dtype::kF32);
  for (int64_t i = 0; i < 128; ++i) EXPECT_EQ(found.data_ptr<float>()[i], values[static_cast<size_t>(i)]) << i;
}

TEST(Quantise, ValuesAreRoundedOnceToWhatIsComputedWith) {
  for (const Case& one : cases()) {
    if (one.format.kind == QuantKind::kNone) continue;
    auto bytes = bytes_of(one, random_values(numel_of(one.shape), 11));
    const Tensor exact = unpacked(one, bytes, Dtype::kF32);
    for (const Dtype dtype : {Dtype::kBF16, Dtype::kF16}) {
      EXPECT_TRUE(unpacked(one, bytes, dtype).equal(to_dtype(exact, dtype))) << dtype_name(dtype);
    }
  }
}

TEST(Quantise, TakesValuesInTheDtypeThatTheyHad) {
  const auto values = random_values(512, 13);
  Tensor rounded = to_dtype(from_values(std::span<const float>(values), {512}), Dtype::kBF16);
  rounded = to_dtype(rounded, Dtype::kF32);
  const std::vector<float> before(rounded.data_ptr<float>(), rounded.data_ptr<float>() + 512);
  EXPECT_EQ(bytes_of({{.kind = QuantKind::kNf4, .dtype = Dtype::kBF16}, {8, 64}}, values),
            bytes_of({{.kind = QuantKind::kNf4}, {8, 64}}, before));
}

TEST(Quantise, ScalesTakeTheRoomThatIsSaid) {
  const Shape shape{1024, 1024};
  const auto share = [&](const QuantFormat& format) {
    return static_cast<double>(QuantLayout::of(format, shape).bytes) / (2.0 * 1024 * 1024);
  };
  EXPECT_LE(share({.kind = QuantKind::kNf4}), 0.29);
  EXPECT_LE(share({.kind = QuantKind::kNf4, .nested = true}), 0.27);
  EXPECT_LE(share({.kind = QuantKind::kInt8}), 0.51);
}

TEST(Quantise, RefusesWhatIsNoNumber) {
  std::vector<float> values(128, 1.0F);
  values[100] = std::nanf("");
  for (const QuantKind kind : {QuantKind::kNf4, QuantKind::kFp4, QuantKind::kInt8}) {
    EXPECT_THROW(bytes_of({{.kind = kind}, {2, 64}}, values), UserError);
  }
}

TEST(Quantise, MapsAreRisingAndWithinOne) {
  const std::vector<float>& nested = nested_quant_map();
  ASSERT_EQ(nested.size(), 256U);
  for (size_t i = 1; i < nested.size(); ++i) EXPECT_LT(nested[i - 1], nested[i]);
  EXPECT_EQ(nested[255], 1.0F);
  EXPECT_EQ(quant_map(QuantKind::kNf4)[7], 0.0F);
}

}  // namespace
}  // namespace lockstep
