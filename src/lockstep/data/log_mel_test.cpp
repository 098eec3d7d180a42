#include "lockstep/data/log_mel.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/mel_filters.h"

namespace lockstep {
namespace {

std::vector<float> tones(size_t count) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) {
    const double t = static_cast<double>(i) / 16000;
    out[i] = static_cast<float>(0.3 * std::sin(2764.6 * t) + 0.2 * std::sin(9424.8 * t * (1 + t)) +
                                0.01 * static_cast<double>(i * 7919 % 101) / 101);
  }
  return out;
}

/// One value by the definition: a window, a sum of turned samples for each frequency, filters, a logarithm.
double log_power(const std::vector<float>& padded, int64_t frame, int64_t bin, int64_t bins) {
  const std::vector<double> filters = mel_filters({.bins = bins});
  double sum = 0;
  for (int64_t k = 0; k <= 200; ++k) {
    const double weight = filters[static_cast<size_t>(k * bins + bin)];
    if (weight == 0) continue;
    std::complex<double> number;
    for (int64_t i = 0; i < 400; ++i) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(i) / 400;
      number += static_cast<double>(padded[static_cast<size_t>(frame * 160 + i)]) * (0.5 - 0.5 * std::cos(angle)) *
                std::polar(1.0, -angle * static_cast<double>(k));
    }
    sum += weight * std::norm(number);
  }
  return std::log10(std::max(sum, 1e-10));
}

TEST(MelFilters, AreSlaneys) {
  const std::vector<double> filters = mel_filters({});
  ASSERT_EQ(filters.size(), 201U * 80U);
  // transformers.audio_utils.mel_filter_bank(201, 80, 0, 8000, 16000, norm="slaney", mel_scale="slaney")
  EXPECT_EQ(filters[0], 0);
  EXPECT_NEAR(filters[1 * 80 + 0], 0.024862593984176087, 1e-15);
  EXPECT_NEAR(filters[100 * 80 + 61], 0.0003358862202509771, 1e-15);
  EXPECT_NEAR(filters[199 * 80 + 79], 0.00044875902758905584, 1e-15);
}

TEST(LogMel, IsWhatTheDefinitionSays) {
  const std::vector<float> samples = tones(1000);
  std::vector<float> padded(200 + 48000 + 200);
  std::copy(samples.begin(), samples.end(), padded.begin() + 200);
  for (size_t i = 0; i < 200; ++i) padded[i] = samples[200 - i];  // mirrored
  for (const int64_t bins : {80, 128}) {
    const LogMel mel = LogMelMaker({.bins = bins, .frames_of_padding = true}).make(samples, "a");
    ASSERT_EQ(mel.frames, 3000);
    double largest = -10;
    for (int64_t frame = 0; frame < 8; ++frame) {
      for (int64_t bin = 0; bin < bins; ++bin) largest = std::max(largest, log_power(padded, frame, bin, bins));
    }
    EXPECT_NEAR(mel.silence, (largest - 8 + 4) / 4, 2e-6);
    for (const int64_t frame : {0, 1, 3, 5, 6, 7, 8, 2999}) {
      for (const int64_t bin : {0, 1, 7, 31, 64, 79}) {
        const double power = frame > 7 ? -10 : log_power(padded, frame, bin, bins);
        EXPECT_NEAR(mel.values[static_cast<size_t>(bin * mel.frames + frame)], (std::max(power, largest - 8) + 4) / 4,
                    2e-6)
            << frame << " " << bin;
      }
    }
  }
}

TEST(LogMel, FramesOfTheClipAreTheFirstOfThePaddedOnes) {
  const LogMelMaker clip({}), padded({.frames_of_padding = true}), turned({.frames_first = true});
  for (const size_t count : {1, 160, 161, 3199, 5000, 479999, 480000}) {
    const std::vector<float> samples = tones(count);
    const LogMel some = clip.make(samples, "a"), all = padded.make(samples, "a"), across = turned.make(samples, "a");
    EXPECT_EQ(some.frames, static_cast<int64_t>((count + 159) / 160));
    EXPECT_EQ(some.frames, clip.frames_of(static_cast<int64_t>(count)));
    ASSERT_EQ(all.values.size(), 80U * 3000U);
    for (int64_t bin = 0; bin < 80; bin += 13) {
      for (int64_t t = 0; t < some.frames; t += 1 + some.frames / 9) {
        const float value = some.values[static_cast<size_t>(bin * some.frames + t)];
        EXPECT_EQ(value, all.values[static_cast<size_t>(bin * 3000 + t)]);
        EXPECT_EQ(value, across.values[static_cast<size_t>(t * 80 + bin)]);
      }
    }
    if (some.frames < 2990) {
      EXPECT_EQ(all.values.back(), all.silence);
    }
  }
}

TEST(LogMel, AloneAClipIsMirroredAtItsEnd) {
  const std::vector<float> samples = tones(960);  // so many that the last frame sees 40 beyond the end
  std::vector<float> padded(1360);
  for (int64_t i = 0; i < 1360; ++i) {
    int64_t at = std::abs(i - 200);
    if (at >= 960) at = 1918 - at;
    padded[static_cast<size_t>(i)] = samples[static_cast<size_t>(at)];
  }
  const LogMel mel = LogMelMaker({.padded_samples = 0}).make(samples, "a");
  ASSERT_EQ(mel.frames, 6);
  EXPECT_NEAR(mel.values[static_cast<size_t>(20 * 6 + 5)], (log_power(padded, 5, 20, 80) + 4) / 4, 2e-6);
}

TEST(LogMel, SilenceIsTheFloor) {
  const LogMel mel = LogMelMaker({}).make(std::vector<float>(500), "a");
  EXPECT_EQ(*std::max_element(mel.values.begin(), mel.values.end()), -1.5F);
  EXPECT_EQ(mel.silence, -1.5F);
}

TEST(LogMel, ClipsThatDoNotFitAreRefused) {
  const auto message = [](const LogMelConfig& config, size_t count) -> std::string {
    try {
      (void)LogMelMaker(config).make(std::vector<float>(count), "rows.jsonl:3: audio a.wav");
    } catch (const UserError& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_EQ(message({}, 480001), "rows.jsonl:3: audio a.wav: expected at most 30 s of sound, found 30.00 s");
  EXPECT_EQ(message({.padded_samples = 0}, 200),
            "rows.jsonl:3: audio a.wav: expected more than 200 samples of sound, found 200");
  EXPECT_EQ(message({.padded_samples = 0}, 201), "");
  EXPECT_EQ(message({}, 0), "rows.jsonl:3: audio a.wav: expected more than 200 samples of sound, found 0");
}

TEST(LogMelConfig, IsReadFromAPreprocessorConfig) {
  const auto read = [](const char* text) { return read_log_mel_config(Json::parse(text), "preprocessor_config.json"); };
  const LogMelConfig config = read(
      R"({"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "n_fft": 400, "hop_length": 160,
          "chunk_length": 300, "sampling_rate": 16000, "padding_value": 0.0, "dither": 0.0, "n_samples": 4800000})");
  EXPECT_EQ(config.bins, 128);
  EXPECT_EQ(config.padded_samples, 4'800'000);
  EXPECT_EQ(read("{}").bins, 80);
  const auto refused = [&](const char* text, const std::string& said) {
    try {
      (void)read(text);
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_EQ(error.message(), "preprocessor_config.json: " + said);
    }
  };
  refused(R"({"n_fft": 402})", "n_fft: expected an even number made of 2 and 5 alone, found 402");
  refused(R"({"feature_size": 1e18})", "feature_size: expected a whole number, 1 to 512, found 1e+18");
  refused(R"({"hop_length": 401})", "hop_length: expected a whole number, 1 to 400, found 401");
  refused(R"({"dither": 0.1})", "dither: expected 0, found 0.1");
  refused(R"({"feature_extractor_type": "SpeechT5FeatureExtractor"})",
          R"(feature_extractor_type: expected WhisperFeatureExtractor, found "SpeechT5FeatureExtractor")");
}

}  // namespace
}  // namespace lockstep
