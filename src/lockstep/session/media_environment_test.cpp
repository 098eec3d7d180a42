#include "lockstep/session/media_environment.h"

#include <map>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(MediaEnvironment, TheEnvironmentSetsWhatItNamesAndNothingElse) {
  MediaOptions media{.shrink_to_pixels = 9};
  read_media_environment(Env({{"MAX_PIXELS", "1003520"}, {"VIDEO_TOTAL_PIXELS", "500"}, {"FPS", "1.5"}}), media);
  EXPECT_EQ(media.max_pixels, 1003520);
  EXPECT_EQ(media.video_total_pixels, 500);
  EXPECT_EQ(media.fps, 1.5);
  EXPECT_EQ(media.min_pixels, 0);
  EXPECT_EQ(media.shrink_to_pixels, 9);
}

TEST(MediaEnvironment, TokensOfAPictureArePixels) {
  MediaOptions media;
  read_media_environment(Env({{"MAX_PIXELS", "99"}, {"IMAGE_MAX_TOKEN_NUM", "1024"}, {"VIDEO_MIN_TOKEN_NUM", "4"}}),
                         media);
  EXPECT_EQ(media.max_pixels, 1024 * 784);
  EXPECT_EQ(media.video_min_pixels, 4 * 784);
  EXPECT_EQ(unheeded_variables({"IMAGE_MAX_TOKEN_NUM"}, family_named("qwen2_5_vl")), std::vector<std::string>{});
  EXPECT_THROW(read_media_environment(Env(std::map<std::string, std::string>{{"IMAGE_MAX_TOKEN_NUM", "0"}}), media),
               UserError);
}

TEST(MediaEnvironment, PartsOfAPictureHaveTwoNames) {
  MediaOptions media;
  read_media_environment(Env({{"MAX_SLICE_NUMS", "4"}, {"VIDEO_MAX_NUM", "2"}, {"MAX_NUM_FRAMES", "8"}}), media);
  EXPECT_EQ(media.max_slices, 4);
  EXPECT_EQ(media.max_tiles, 0);
  EXPECT_EQ(media.video_max_tiles, 2);
  EXPECT_EQ(media.video_max_slices, 0);
  EXPECT_EQ(media.max_frames, 8);
}

TEST(MediaEnvironment, OfTwoNamesForOneThingAFamilyThatHeedsBothExpectsOne) {
  for (const auto& [name, other] : std::vector<std::pair<std::string, std::string>>{
           {"MAX_NUM", "MAX_SLICE_NUMS"}, {"VIDEO_MAX_NUM", "VIDEO_MAX_SLICE_NUMS"}}) {
    try {
      (void)unheeded_variables({name, other}, family_named("minicpm_v_2_6"));
      FAIL();
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      EXPECT_NE(std::string(e.what()).find(name + " and " + other), std::string::npos) << e.what();
    }
    EXPECT_EQ(unheeded_variables({name}, family_named("minicpm_v_2_6")), std::vector<std::string>{});
    EXPECT_EQ(unheeded_variables({name, other}, family_named("internvl")),
              std::vector<std::string>{other + " is set in the environment, and internvl does not heed it (it heeds "
                                               "INPUT_SIZE, MAX_NUM, VIDEO_MAX_NUM, VIDEO_SEGMENTS)"});
    EXPECT_EQ(unheeded_variables({name, other}, family_named("qwen2")).size(), 2U);
  }
}

TEST(MediaEnvironment, SoundHasARateAndMayGoWithItsFilm) {
  MediaOptions media;
  read_media_environment(
      Env(std::map<std::string, std::string>{{"SAMPLING_RATE", "16000"}, {"USE_AUDIO_IN_VIDEO", "true"}}), media);
  EXPECT_EQ(media.sampling_rate, 16000);
  EXPECT_TRUE(media.audio_in_video);
  read_media_environment(Env(std::map<std::string, std::string>{{"USE_AUDIO_IN_VIDEO", "0"}}), media);
  EXPECT_FALSE(media.audio_in_video);
  EXPECT_THROW(
      read_media_environment(Env(std::map<std::string, std::string>{{"USE_AUDIO_IN_VIDEO", "perhaps"}}), media),
      UserError);
}

TEST(MediaEnvironment, FramesOfAFilmAndTheProgramsThatReadIt) {
  MediaOptions media;
  read_media_environment(Env({{"FPS_MIN_FRAMES", "2"},
                              {"FPS_MAX_FRAMES", "12"},
                              {"NFRAMES", "6"},
                              {"VIDEO_SEGMENTS", "4"},
                              {"PATH", "/opt/bin:/bin"}}),
                         media);
  EXPECT_EQ(media.fps_min_frames, 2);
  EXPECT_EQ(media.fps_max_frames, 12);
  EXPECT_EQ(media.num_frames, 6);
  EXPECT_EQ(media.video_segments, 4);
  EXPECT_EQ(media.program_path, "/opt/bin:/bin");
  EXPECT_THROW((void)unheeded_variables({"NFRAMES", "FPS"}, family_named("qwen2_5_vl")), UserError);
  EXPECT_EQ(unheeded_variables({"NFRAMES", "FPS"}, family_named("internvl")).size(), 2U);
}

TEST(MediaEnvironment, VariablesThatAreSetAreNoted) {
  EXPECT_EQ(media_variables(Env({{"MAX_NUM", "4"}, {"VIDEO_SEGMENTS", "8"}, {"HOME", "/"}, {"FPS", ""}})),
            (std::vector<std::string>{"MAX_NUM", "VIDEO_SEGMENTS"}));
  EXPECT_EQ(media_variables(Env({{"SIZE_FACTOR", "28"}, {"FRAME_FACTOR", "4"}, {"MAX_RATIO", "200"}})),
            std::vector<std::string>{"FRAME_FACTOR"})
      << "what is done anyway is not told";
}

TEST(MediaEnvironment, WhatLlamaFactorysFilmsDoNotHeedIsTold) {
  std::map<std::string, std::string> all{{"MEDIA_AS", "llama_factory"}};
  for (const char* name : {"FPS", "FPS_MAX_FRAMES", "VIDEO_MAX_PIXELS", "VIDEO_MIN_TOKEN_NUM"}) all[name] = "2";
  for (const char* family : {"qwen2_5_vl", "internvl", "minicpm_v_2_6"}) {
    EXPECT_EQ(unheeded_variables(media_variables(Env(all)), family_named(family)), std::vector<std::string>{});
    for (const char* name : {"NFRAMES", "FPS_MIN_FRAMES", "VIDEO_TOTAL_PIXELS", "VIDEO_SEGMENTS"}) {
      auto more = all;
      more[name] = "4";
      const auto told = unheeded_variables(media_variables(Env(more)), family_named(family));
      ASSERT_EQ(told.size(), 1U) << family << " " << name;
      EXPECT_TRUE(told[0].starts_with(std::string(name) + " is set in the environment, and nothing heeds it"))
          << told[0];
    }
  }
}

TEST(MediaEnvironment, RefusesWhatIsNoSizeOrSpeed) {
  MediaOptions media;
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"MAX_PIXELS", "0"},
                                                                                    {"INPUT_SIZE", "0"},
                                                                                    {"MIN_PIXELS", "-1"},
                                                                                    {"VIDEO_MAX_PIXELS", "many"},
                                                                                    {"MAX_NUM", "0"},
                                                                                    {"MAX_NUM", "1000000000"},
                                                                                    {"VIDEO_MAX_NUM", "-3"},
                                                                                    {"MAX_SLICE_NUMS", "0"},
                                                                                    {"VIDEO_MAX_SLICE_NUMS", "5000"},
                                                                                    {"MAX_NUM_FRAMES", "0"},
                                                                                    {"FPS_MAX_FRAMES", "-2"},
                                                                                    {"NFRAMES", "0"},
                                                                                    {"VIDEO_SEGMENTS", "x"},
                                                                                    {"FPS", "2x"},
                                                                                    {"FPS", "0"},
                                                                                    {"FPS", "nan"},
                                                                                    {"SAMPLING_RATE", "0"},
                                                                                    {"SAMPLING_RATE", "16k"}}) {
    EXPECT_THROW(read_media_environment(Env(std::map<std::string, std::string>{{name, value}}), media), UserError)
        << name << "=" << value;
  }
}

}  // namespace
}  // namespace lockstep
