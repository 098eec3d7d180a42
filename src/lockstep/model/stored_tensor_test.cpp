#include "lockstep/model/stored_tensor.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

/// Elements [first, first + count) of u8 values 0, 1, 2, … that stand behind three others.
std::vector<int> elements(const StoredTensor& stored, int64_t first, int64_t count) {
  std::vector<std::byte> file(200);
  for (size_t i = 3; i < file.size(); ++i) file[i] = static_cast<std::byte>(i - 3);
  std::vector<std::byte> out(static_cast<size_t>(count));
  copy_elements(stored, file, first, out);
  std::vector<int> numbers;
  for (const std::byte one : out) numbers.push_back(static_cast<int>(one));
  return numbers;
}

TEST(StoredTensorTest, CopiesWhatStandsTogether) {
  const StoredTensor stored{.spec = {"a", Dtype::kU8, {2, 3}}, .begin = 3, .end = 9};
  EXPECT_EQ(elements(stored, 0, 6), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(elements(stored, 4, 2), (std::vector<int>{4, 5}));
  EXPECT_EQ(elements(stored, 6, 0), std::vector<int>{});
}

TEST(StoredTensorTest, FollowsTheStridesOfViews) {
  const StoredTensor transposed{.spec = {"a", Dtype::kU8, {3, 2}}, .begin = 3, .end = 9, .strides = {1, 3}};
  EXPECT_EQ(elements(transposed, 0, 6), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(elements(transposed, 1, 3), (std::vector<int>{3, 1, 4}));
  const StoredTensor expanded{.spec = {"a", Dtype::kU8, {2, 1, 3}}, .begin = 4, .end = 7, .strides = {0, 0, 1}};
  EXPECT_EQ(elements(expanded, 0, 6), (std::vector<int>{1, 2, 3, 1, 2, 3}));
  const StoredTensor column{.spec = {"a", Dtype::kU8, {4}}, .begin = 3, .end = 34, .strides = {10}};
  EXPECT_EQ(elements(column, 2, 2), (std::vector<int>{20, 30}));
}

TEST(StoredTensorTest, AnySliceOfAnyViewIsThatOfTheWholeByIndices) {
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Dtype> dtypes{Dtype::kU8, Dtype::kF16, Dtype::kF32, Dtype::kF64};
    const Dtype dtype = dtypes[random() % dtypes.size()];
    const auto size = static_cast<size_t>(dtype_bytes(dtype));
    Shape shape, strides;
    int64_t numel = 1, last = 0;
    for (auto left = 1 + random() % 4; left > 0; --left) {
      shape.push_back(1 + random() % 4);
      strides.push_back(shape.back() == 1 ? 0 : random() % 12);
      numel *= shape.back();
      last += (shape.back() - 1) * strides.back();
    }
    std::vector<std::byte> file(static_cast<size_t>(last + 1) * size + 5);
    for (auto& one : file) one = static_cast<std::byte>(random());
    const StoredTensor stored{.spec = {"a", dtype, shape}, .begin = 5, .end = file.size(), .strides = strides};
    const int64_t first = random() % numel, count = 1 + random() % (numel - first);
    std::vector<std::byte> out(static_cast<size_t>(count) * size);
    copy_elements(stored, file, first, out);
    for (int64_t i = 0; i < count; ++i) {
      int64_t flat = first + i, offset = 0;
      for (size_t d = shape.size(); d-- > 0; flat /= shape[d]) offset += flat % shape[d] * strides[d];
      ASSERT_EQ(std::memcmp(&out[static_cast<size_t>(i) * size], &file[5 + static_cast<size_t>(offset) * size], size),
                0)
          << "seed " << kSeed << " round " << round;
    }
  }
}

}  // namespace
}  // namespace lockstep
