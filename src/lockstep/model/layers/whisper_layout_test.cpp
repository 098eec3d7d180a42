#include "lockstep/model/layers/whisper_layout.h"

#include <span>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

using Numbers = std::vector<int64_t>;

Flow laid_out(const WhisperLayoutConfig& config, const Numbers& frames) {
  Numbers values;
  for (const int64_t one : frames) values.insert(values.end(), {one, one});
  Flow in;
  in.set(kAudioFrames, from_values(std::span<const int64_t>(values), {static_cast<int64_t>(frames.size()), 2}));
  const WhisperLayout layout("ears", config);
  const Params none({}, {});
  return layout.forward(none, in, {});
}

Numbers numbers(const Tensor& tensor) {
  const Tensor flat = tensor.contiguous();
  const auto* from = flat.const_data_ptr<int64_t>();
  return {from, from + flat.numel()};
}

TEST(WhisperLayout, ChunksAreClipsOfTheirOwnAndPoolingGoesOnOverTheirEnds) {
  const Flow out = laid_out({.max_positions = 3, .pool = 2, .chunk = 6}, {13, 4});  // 6 + 6 + 1 frames, and 4
  EXPECT_EQ(numbers(out["clip_ends"]), (Numbers{3, 3, 6, 3, 7, 1, 9, 2}));
  EXPECT_EQ(numbers(out["audio_places"]), (Numbers{0, 1, 2, 0, 1, 2, 0, 0, 1}));
  EXPECT_EQ(numbers(out["pool_windows"]),
            (Numbers{0, 1, 2, 3, 4, 5, 7, 8}));  // 2 and 3 are of two chunks; 6 has no pair
  const Numbers windows = numbers(out["frame_windows"]);
  EXPECT_EQ(Numbers(windows.begin() + 15, windows.begin() + 21),
            (Numbers{4, 5, 17, 17, 6, 7}));  // silence between chunks
}

TEST(WhisperLayout, WhatAClipGivesIsTheSameWhateverItsNeighbours) {
  const WhisperLayoutConfig config{.max_positions = 4, .pool = 2, .chunk = 8};
  const Flow alone = laid_out(config, {11}), beside = laid_out(config, {11, 30});
  const Numbers one = numbers(alone["pool_windows"]), both = numbers(beside["pool_windows"]);
  EXPECT_EQ(one, Numbers(both.begin(), both.begin() + static_cast<int64_t>(one.size())));
  const Numbers places = numbers(alone["audio_places"]), more = numbers(beside["audio_places"]);
  EXPECT_EQ(places, Numbers(more.begin(), more.begin() + static_cast<int64_t>(places.size())));
}

TEST(WhisperLayout, OnlyWholeClipsHaveALongestLength) {
  EXPECT_THROW(laid_out({.max_positions = 4, .pool = 1}, {9}), UserError);
  EXPECT_NO_THROW(laid_out({.max_positions = 4, .pool = 1, .chunk = 8}, {9}));
}

}  // namespace
}  // namespace lockstep
