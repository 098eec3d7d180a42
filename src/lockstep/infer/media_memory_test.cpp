#include "lockstep/infer/media_memory.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

Features row_with_picture() {
  Features row;
  row.input_ids = {1, 40, 40, 2};
  row.media.push_back({.shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}, .places = {1, 2}});
  row.media[0].facts["grid_thw"] = {1, 2, 3};
  return row;
}

std::shared_ptr<const MediaOutputs> outputs(int64_t bytes) {
  return std::make_shared<const MediaOutputs>(MediaOutputs{{7, Flow{{"media", zeros({bytes}, Dtype::kU8)}}}});
}

TEST(MediaMemory, ARowIsKnownByItsMediaAlone) {
  const Features row = row_with_picture();
  const auto key = media_key(row, std::nullopt);
  Features other = row;
  other.input_ids = {5, 6, 40, 40};
  other.media[0].places = {2, 3};
  EXPECT_EQ(media_key(other, std::nullopt), key) << "another question";
  EXPECT_NE(media_key(row, 0), key) << "an adapter may change a tower";
  EXPECT_NE(media_key(row, 0), media_key(row, 1));
  const auto changed = [&](auto change) {
    Features one = row;
    change(one.media);
    return media_key(one, std::nullopt);
  };
  EXPECT_NE(changed([](auto& media) { media[0].values[5] = 7; }), key);
  EXPECT_NE(changed([](auto& media) { media[0].shape = {3, 2}; }), key);
  EXPECT_NE(changed([](auto& media) { media[0].facts["grid_thw"] = {1, 3, 2}; }), key);
  EXPECT_NE(changed([](auto& media) { media[0].modality = Modality::kVideo; }), key);
  EXPECT_NE(changed([](auto& media) { media[0].slot = "video"; }), key);
  EXPECT_NE(changed([](auto& media) { media.push_back(media[0]); }), key);
  EXPECT_EQ(media_key(Features{.input_ids = {1}}, std::nullopt), std::nullopt);
  EXPECT_EQ(media_slots(row), (std::vector<std::string>{"grid_thw", "pixel_values"}));
}

TEST(MediaMemory, ForgetsWhatWasNotAskedForLongest) {
  MediaMemory memory(100);
  const MediaKey a{0, 1}, b{0, 2}, c{0, 3}, d{0, 4};
  memory.keep(a, outputs(40));
  memory.keep(b, outputs(40));
  ASSERT_NE(memory.find(a), nullptr);
  memory.keep(c, outputs(40));
  EXPECT_EQ(memory.find(b), nullptr);
  EXPECT_NE(memory.find(a), nullptr);
  EXPECT_NE(memory.find(c), nullptr);
  memory.keep(d, outputs(101));
  EXPECT_EQ(memory.find(d), nullptr) << "more than there is room for";
  EXPECT_NE(memory.find(c), nullptr);
  memory.keep(d, nullptr);
  EXPECT_EQ(memory.find(d), nullptr);
}

TEST(MediaMemory, ATensorThatSeveralStepsReadCountsOnce) {
  MediaMemory memory(100);
  const Tensor tensor = zeros({60}, Dtype::kU8);
  memory.keep({0, 1}, std::make_shared<const MediaOutputs>(
                          MediaOutputs{{7, Flow{{"media", tensor}}}, {9, Flow{{"media", tensor.narrow(0, 0, 30)}}}}));
  EXPECT_NE(memory.find({0, 1}), nullptr);
}

}  // namespace
}  // namespace lockstep
