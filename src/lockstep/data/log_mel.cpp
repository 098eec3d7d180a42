#include "lockstep/data/log_mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/image_keys.h"
#include "lockstep/data/mel_filters.h"

namespace lockstep {

namespace {

constexpr double kHighestFrequency = 8000;  // of Whisper's filters, whatever the rate
constexpr float kFloor = 1e-10F;            // power; its logarithm is -10
constexpr float kRange = 8;                 // decades of power below the largest that are told apart

MelSpectraParts parts_of(const LogMelConfig& config) {
  MelSpectraParts parts{.n_fft = config.n_fft, .hop = config.hop, .window = {}, .filters = {}, .bins = config.bins};
  parts.floor = kFloor;
  for (int64_t i = 0; i < config.n_fft; ++i) {  // Hann's, periodic
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(config.n_fft);
    parts.window.push_back(0.5 - 0.5 * std::cos(angle));
  }
  parts.filters = mel_filters({.bins = config.bins,
                               .n_fft = config.n_fft,
                               .rate = static_cast<double>(config.rate),
                               .min_frequency = 0,
                               .max_frequency = kHighestFrequency});
  return parts;
}

/// The samples that `frames` frames see: half a frame before the clip is its beginning mirrored; behind it stands silence
/// up to `whole` samples, and then the mirrored end.
std::vector<float> surrounded(std::span<const float> samples, int64_t whole, int64_t frames,
                              const LogMelConfig& config) {
  const int64_t half = config.n_fft / 2, length = (frames - 1) * config.hop + config.n_fft;
  const auto n = static_cast<int64_t>(samples.size());
  std::vector<float> out(static_cast<size_t>(length));
  const auto sample_at = [&](int64_t at) {
    if (at < 0) at = -at;
    if (at >= whole) at = 2 * (whole - 1) - at;
    return at < n ? samples[static_cast<size_t>(at)] : 0.0F;
  };
  const int64_t plain_end = std::min(length, half + n);
  for (int64_t i = 0; i < std::min(half, length); ++i) out[static_cast<size_t>(i)] = sample_at(i - half);
  std::copy_n(samples.begin(), std::max<int64_t>(0, plain_end - half), out.begin() + half);
  for (int64_t i = std::max(half, plain_end); i < length; ++i) out[static_cast<size_t>(i)] = sample_at(i - half);
  return out;
}

/// An integer of a key, `lowest` to `highest`; absent: left alone.
void read_integer(const ImageKeys& keys, const char* key, int64_t& value, int64_t lowest, int64_t highest) {
  const Json* found = keys.find(key);
  if (found == nullptr) return;
  const bool inside = found->is_number_integer() && found->get<double>() >= static_cast<double>(lowest) &&
                      found->get<double>() <= static_cast<double>(highest);
  if (!inside) throw keys.wrong(key, fmt::format("a whole number, {} to {}", lowest, highest).c_str(), *found);
  value = found->get<int64_t>();
}

/// What would change values must be what is done here.
void refuse_others(const ImageKeys& keys) {
  const Json* type = keys.find("feature_extractor_type");
  if (type != nullptr && *type != "WhisperFeatureExtractor")
    throw keys.wrong("feature_extractor_type", "WhisperFeatureExtractor", *type);
  for (const char* key : {"dither", "padding_value"}) {
    double value = 0;
    keys.read(key, value);
    if (value != 0) throw keys.wrong(key, "0", *keys.find(key));
  }
}

}  // namespace

LogMelConfig read_log_mel_config(const Json& json, const std::string& where) {
  const ImageKeys keys(json, where);
  refuse_others(keys);
  LogMelConfig config;
  read_integer(keys, "feature_size", config.bins, 1, 512);
  read_integer(keys, "n_fft", config.n_fft, 16, 4096);
  if (!is_fft_size(config.n_fft))
    throw keys.wrong("n_fft", "an even number made of 2 and 5 alone", *keys.find("n_fft"));
  read_integer(keys, "hop_length", config.hop, 1, config.n_fft);
  read_integer(keys, "sampling_rate", config.rate, 2000, 384000);
  int64_t seconds = 30;
  read_integer(keys, "chunk_length", seconds, 1, 3600);
  config.padded_samples = seconds * config.rate;
  return config;
}

LogMelMaker::LogMelMaker(const LogMelConfig& config) : config_(config), spectra_(parts_of(config)) {}

int64_t LogMelMaker::frames_of(int64_t samples) const {
  if (config_.padded_samples == 0) return samples / config_.hop;
  return std::min((samples + config_.hop - 1) / config_.hop, config_.padded_samples / config_.hop);
}

LogMel LogMelMaker::make(std::span<const float> samples, const std::string& where) const {
  const auto n = static_cast<int64_t>(samples.size());
  const int64_t padded = config_.padded_samples, half = config_.n_fft / 2;
  const auto seconds = [&](int64_t count) { return static_cast<double>(count) / static_cast<double>(config_.rate); };
  if (padded > 0 && n > padded) {
    throw data_error(
        fmt::format("{}: expected at most {:g} s of sound, found {:.2f} s", where, seconds(padded), seconds(n)),
        "cut it into clips of that length, a row each");
  }
  const int64_t whole = padded > 0 ? padded : n;
  if (n == 0 || whole <= half || whole < config_.hop) {
    throw data_error(fmt::format("{}: expected more than {} samples of sound, found {}", where, half, n),
                     "leave clips out that are this short");
  }
  // Frames that see a sample: further ones are all silence, and their logarithm is the smallest that there is.
  const int64_t all = whole / config_.hop, seen = std::min(all, (n + half + config_.hop - 1) / config_.hop);
  const int64_t stride = (seen + kernels::kMelFrames - 1) / kernels::kMelFrames * kernels::kMelFrames;
  std::vector<float> logs(static_cast<size_t>(stride * config_.bins));
  const float largest = spectra_.run(surrounded(samples, whole, seen, config_), seen, logs, stride);

  const float lowest = std::max(largest - kRange, std::log10(kFloor));
  LogMel mel{.bins = config_.bins, .frames = config_.frames_of_padding ? all : frames_of(n)};
  mel.silence = (lowest + 4.0F) / 4.0F;
  mel.values.assign(static_cast<size_t>(mel.bins * mel.frames), mel.silence);
  const int64_t bin_step = config_.frames_first ? 1 : mel.frames, frame_step = config_.frames_first ? mel.bins : 1;
  for (int64_t bin = 0; bin < mel.bins; ++bin) {
    const float* const from = logs.data() + bin * stride;
    float* const to = mel.values.data() + bin * bin_step;
    for (int64_t t = 0; t < std::min(seen, mel.frames); ++t)
      to[t * frame_step] = (std::max(from[t], lowest) + 4.0F) / 4.0F;
  }
  return mel;
}

}  // namespace lockstep
