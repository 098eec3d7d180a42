// Which frames a convolution sees, which states a clip has, and which of them make a token, clip by clip; the whole tower is held
// by recorded oracles (zoo/oracle_test.cpp).
#include "lockstep/model/layers/whisper_layout.h"

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;

/// `clips`: frames of each, and frames that its values hold.
Flow laid_out(const WhisperLayoutConfig& config, const Ints& clips) {
  const Tensor frames = from_values(std::span<const int64_t>(clips), {static_cast<int64_t>(clips.size()) / 2, 2});
  return WhisperLayout("audio.layout", config).forward(Params({}, {}), {{kAudioFrames, frames}}, {});
}

Ints values(const Tensor& table) {
  const Tensor host = table.contiguous();
  const auto* first = host.const_data_ptr<int64_t>();
  return {first, first + host.numel()};
}

TEST(WhisperLayout, AConvolutionSeesTheFrameBesideAndSilenceBeyondEitherEnd) {
  const Flow made = laid_out({.max_positions = 8}, {3, 3});
  EXPECT_EQ(values(made["frame_windows"]), (Ints{3, 0, 1, 0, 1, 2, 1, 2, 3}));  // 3: the row behind the last is silence
  EXPECT_EQ(values(made["state_windows"]), (Ints{3, 0, 1, 1, 2, 3}));           // every other frame becomes a state
  EXPECT_EQ(made["frame_windows"].sizes(), at::IntArrayRef({3, 3}));
  EXPECT_EQ(made["state_windows"].sizes(), at::IntArrayRef({2, 3}));
}

TEST(WhisperLayout, ClipsStandBehindOneAnotherAndSeeNothingOfTheirNeighbours) {
  const Flow made = laid_out({.max_positions = 8}, {3, 3, 2, 2});
  EXPECT_EQ(values(made["frame_windows"]), (Ints{5, 0, 1, 0, 1, 2, 1, 2, 5, 5, 3, 4, 3, 4, 5}));
  EXPECT_EQ(values(made["state_windows"]), (Ints{5, 0, 1, 1, 2, 5, 5, 3, 4}));
  EXPECT_EQ(values(made["audio_places"]), (Ints{0, 1, 0}));  // positions begin anew
  EXPECT_EQ(values(made["clip_ends"]), (Ints{2, 2, 3, 1}));
  EXPECT_EQ(made["clip_ends"].sizes(), at::IntArrayRef({2, 2}));
}

TEST(WhisperLayout, StatesThatMakeNoWholeTokenAreLeftOut) {
  const Flow made = laid_out({.max_positions = 8, .pool = 2}, {10, 10, 6, 6});  // 5 and 3 states
  EXPECT_EQ(values(made["pool_windows"]), (Ints{0, 1, 2, 3, 5, 6}));
  EXPECT_EQ(made["pool_windows"].sizes(), at::IntArrayRef({3, 2}));
}

TEST(WhisperLayout, WhatFillsUpARecordedClipIsComputedAndMakesNoToken) {
  const Flow made = laid_out({.max_positions = 8, .pool = 2}, {4, 12});
  EXPECT_EQ(made["frame_windows"].size(0), 12);
  EXPECT_EQ(values(made["audio_places"]), (Ints{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values(made["clip_ends"]), (Ints{6, 4}));  // as the model was made: as many states as the clip has frames
  EXPECT_EQ(values(made["pool_windows"]), (Ints{0, 1}));
}

TEST(WhisperLayout, AClipOfAsManyStatesAsThereArePositionsIsTheLongest) {
  EXPECT_EQ(laid_out({.max_positions = 4}, {8, 8})["audio_places"].size(0), 4);
  try {
    (void)laid_out({.max_positions = 4}, {9, 9});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kData);
    EXPECT_NE(std::string(e.what()).find("audio.layout: expected clips of at most 8 frames, found 9"),
              std::string::npos)
        << e.what();
  }
}

TEST(WhisperLayout, ChunksAreClipsOfTheirOwnAndPoolingGoesOnOverTheirEnds) {
  const Flow out = laid_out({.max_positions = 3, .pool = 2, .chunk = 6}, {13, 13, 4, 4});  // 6 + 6 + 1 frames, and 4
  EXPECT_EQ(values(out["clip_ends"]), (Ints{3, 3, 6, 3, 7, 1, 9, 2}));
  EXPECT_EQ(values(out["audio_places"]), (Ints{0, 1, 2, 0, 1, 2, 0, 0, 1}));
  EXPECT_EQ(values(out["pool_windows"]), (Ints{0, 1, 2, 3, 4, 5, 7, 8}));  // 2 and 3 are of two chunks; 6 has no pair
  const Ints windows = values(out["frame_windows"]);
  EXPECT_EQ(Ints(windows.begin() + 15, windows.begin() + 21), (Ints{4, 5, 17, 17, 6, 7}));  // silence between chunks
}

TEST(WhisperLayout, WhatAClipGivesIsTheSameWhateverItsNeighbours) {
  const WhisperLayoutConfig config{.max_positions = 4, .pool = 2, .chunk = 8};
  const Flow alone = laid_out(config, {11, 11}), beside = laid_out(config, {11, 11, 30, 30});
  const Ints one = values(alone["pool_windows"]), both = values(beside["pool_windows"]);
  EXPECT_EQ(one, Ints(both.begin(), both.begin() + static_cast<int64_t>(one.size())));
  const Ints places = values(alone["audio_places"]), more = values(beside["audio_places"]);
  EXPECT_EQ(places, Ints(more.begin(), more.begin() + static_cast<int64_t>(places.size())));
}

TEST(WhisperLayout, OnlyWholeClipsHaveALongestLength) {
  EXPECT_THROW(laid_out({.max_positions = 4, .pool = 1}, {9, 9}), UserError);
  EXPECT_NO_THROW(laid_out({.max_positions = 4, .pool = 1, .chunk = 8}, {9, 9}));
}

}  // namespace
}  // namespace lockstep
