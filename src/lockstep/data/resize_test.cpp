// Resized pictures and pixel values against what torchvision, Pillow and transformers made of the same drawings
// (tests/fixtures/images/resized.json).
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/data/image.h"
#include "lockstep/data/patch_image.h"
#include "lockstep/data/test_images.h"

namespace lockstep {
namespace {

Json recorded(const char* list) {
  return read_json(std::filesystem::path(LOCKSTEP_FIXTURES) / "images" / "resized.json").at(list);
}

TEST(Resize, GivesTheBytesOfTorchvisionAndOfPillow) {
  int differ = 0;
  for (const auto& row : recorded("resized")) {
    const Image image = drawn_image(row[0].get<std::string>(), row[2], row[3], row[1]);
    const auto made = [&](ImageBackend backend) {
      return fnv(resize(image, row[4], row[5], static_cast<Resample>(row[6].get<int>()), backend));
    };
    EXPECT_EQ(made(ImageBackend::kTorchvision), row[7].get<std::string>()) << row;
    EXPECT_EQ(made(ImageBackend::kPillow), row[8].get<std::string>()) << row;
    differ += row[7] == row[8] ? 0 : 1;
  }
  EXPECT_GT(differ, 200) << "the recorded ways are hardly told apart";
}

TEST(Resize, FiltersThatTorchvisionDoesNotHaveArePillows) {
  const Image image = drawn_image("noise", 40, 30, 1);
  for (const Resample filter : {Resample::kLanczos, Resample::kBox, Resample::kHamming}) {
    EXPECT_EQ(resize(image, 23, 17, filter, ImageBackend::kTorchvision).pixels,
              resize(image, 23, 17, filter, ImageBackend::kPillow).pixels);
  }
}

TEST(Resize, ToTheSameSizeIsTheSamePicture) {
  const Image image = drawn_image("noise", 3, 2, 1);
  EXPECT_EQ(resize(image, 3, 2, Resample::kLanczos, ImageBackend::kPillow).pixels, image.pixels);
}

TEST(PatchPixels, AreThoseOfTransformersBitForBit) {
  size_t images = 0, videos = 0;
  for (const auto& row : recorded("patches")) {
    const auto count = row["frames"].get<uint32_t>();
    std::vector<Image> frames;
    for (uint32_t k = 0; k < count; ++k) {
      frames.push_back(
          drawn_image(row["kind"].get<std::string>(), row["width"], row["height"], row["seed"].get<uint32_t>() + k));
    }
    const MediaBlock block = patch_pixels(frames, read_patch_image_config(row["config"], "config"), "row");
    EXPECT_EQ(block.facts.at("grid_thw"), row["grid"].get<std::vector<int64_t>>()) << row;
    EXPECT_EQ(fnv(block.values), row["hash"].get<std::string>()) << row;
    ++(count > 1 ? videos : images);
  }
  EXPECT_EQ(images, 10);
  EXPECT_EQ(videos, 3);
}

}  // namespace
}  // namespace lockstep
