#include <vector>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/base/test_folder.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

class AddedRows : public InTestFolder {};

std::vector<float> floats(const Tensor& tensor) {
  const Tensor f = to_dtype(tensor, Dtype::kF32).contiguous();
  return {f.data_ptr<float>(), f.data_ptr<float>() + f.numel()};
}

TEST_F(AddedRows, AreTheMeanOfTheOthers) {
  {
    SafetensorsWriter writer(folder_, {{"table", Dtype::kBF16, {3, 4}}, {"other", Dtype::kF32, {2}}});
    Tensor table = zeros({3, 4}, Dtype::kF32);
    for (int64_t i = 0; i < 12; ++i) table.data_ptr<float>()[i] = static_cast<float>(i);
    writer.write("table", to_dtype(table, Dtype::kBF16));
    writer.write("other", zeros({2}, Dtype::kF32));
    writer.finish();
  }
  Weights weights = Weights::open(folder_);
  const int64_t bytes = weights.total_bytes();
  weights.set_rows("table", 5);
  EXPECT_EQ(weights.find("table")->shape, (Shape{5, 4}));
  EXPECT_EQ(weights.total_bytes(), bytes + 2 * 4 * 2);
  const std::vector<float> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 4, 5, 6, 7, 4, 5, 6, 7};
  EXPECT_EQ(floats(weights.read("table")), all);
  for (int64_t begin = 0; begin <= 20; ++begin) {
    for (int64_t end = begin; end <= 20; ++end) {
      const Tensor part = empty({end - begin}, Dtype::kF32);
      weights.read_flat("table", begin, part);
      EXPECT_EQ(floats(part), std::vector<float>(all.begin() + begin, all.begin() + end)) << begin << " " << end;
    }
  }
}

TEST_F(AddedRows, MayBeFewerThanTheFilesOwn) {
  {
    SafetensorsWriter writer(folder_, {{"table", Dtype::kF32, {3, 2}}});
    Tensor table = zeros({3, 2}, Dtype::kF32);
    for (int64_t i = 0; i < 6; ++i) table.data_ptr<float>()[i] = static_cast<float>(i);
    writer.write("table", table);
    writer.finish();
  }
  Weights weights = Weights::open(folder_);
  weights.set_rows("table", 2);
  EXPECT_EQ(weights.find("table")->shape, (Shape{2, 2}));
  EXPECT_EQ(weights.total_bytes(), 2 * 2 * 4);
  EXPECT_EQ(floats(weights.read("table")), (std::vector<float>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace lockstep
