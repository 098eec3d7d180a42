#include "lockstep/data/audio.h"

#include <algorithm>
#include <map>
#include <optional>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/json.h"
#include "lockstep/data/log_mel.h"
#include "lockstep/data/mel_filters.h"
#include "lockstep/data/sound_reader.h"
#include "lockstep/tensor/make.h"
#include "lockstep/verify/parts.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

/// Samples and features, by what they are made of.
constexpr double kSamples = 1e-4, kOfSamples = 1e-4, kOfFile = 1e-3;

/// As stored: (n) or (n, channels).
Tensor decoded(const fs::path& path) {
  const std::string bytes = read_text(path);
  KnownAudio known = known_audio(bytes, path.string());
  const auto counted = check_whole(known, path.string());
  SoundReader reader(known, counted, path.string());
  const int64_t channels = reader.channels();
  std::vector<float> all, block(static_cast<size_t>(channels) << 12);
  while (const int64_t got = reader.read(block)) all.insert(all.end(), block.begin(), block.begin() + got * channels);
  const auto frames = static_cast<int64_t>(all.size()) / channels;
  return from_values(std::span<const float>(all), channels == 1 ? Shape{frames} : Shape{frames, channels});
}

Tensor tensor_of(const std::vector<float>& values) {
  return from_values(std::span<const float>(values), {static_cast<int64_t>(values.size())});
}

/// "mel_80", "mel_80_pad", "alone_128": which features these are.
struct MelKind {
  int64_t bins = 80;
  bool alone = false, pad = false;
};

std::optional<MelKind> mel_kind(const std::string& kind) {
  if (!kind.starts_with("mel_") && !kind.starts_with("alone_")) return std::nullopt;
  return MelKind{.bins = kind.find("_128") != std::string::npos ? 128 : 80,
                 .alone = kind.starts_with("alone_"),
                 .pad = kind.ends_with("_pad")};
}

/// Of these samples what was recorded: some of the padding's frames are.
Tensor mel_of(const MelKind& kind, std::span<const float> samples, const Tensor& expected, const std::string& file) {
  LogMelConfig config{.bins = kind.bins, .frames_of_padding = true};
  if (kind.alone) config.padded_samples = 0;
  const LogMel mel = LogMelMaker(config).make(samples, file);
  if (kind.pad) return full({kind.bins}, mel.silence, Dtype::kF32);
  const Tensor all = from_values(std::span<const float>(mel.values), {mel.bins, mel.frames});
  return expected.dim() == 2 && expected.size(1) < mel.frames ? all.narrow(1, 0, expected.size(1)) : all;
}

struct Clip {
  std::string file;
  Audio audio;
  Tensor resampled;  // as recorded
};

void verify_clip(const Clip& clip, const std::string& kind, const Tensor& expected, const fs::path& path,
                 VerifyReport& report) {
  const bool lossless = clip.file.ends_with(".wav") || clip.file.ends_with(".flac");
  if (kind == "decoded") {
    report.compare(clip.file, kind, expected, decoded(path), {.max = lossless ? 0 : kSamples});
  } else if (kind == "resampled") {
    report.compare(clip.file, kind, expected, tensor_of(clip.audio.samples), {.max = kSamples});
  } else if (kind == "frames") {
    const int64_t frames = LogMelMaker({}).frames_of(static_cast<int64_t>(clip.audio.samples.size()));
    report.measured(clip.file, kind, std::abs(static_cast<double>(frames - expected.item<int64_t>())), 0);
  } else if (const auto mel = mel_kind(kind)) {
    if (clip.resampled.defined()) {
      const std::span<const float> samples(clip.resampled.const_data_ptr<float>(),
                                           static_cast<size_t>(clip.resampled.numel()));
      report.compare(clip.file, kind, expected, mel_of(*mel, samples, expected, clip.file), {.max = kOfSamples});
    }
    report.compare(clip.file, kind + " of the file", expected, mel_of(*mel, clip.audio.samples, expected, clip.file),
                   {.max = kOfFile});
  } else {
    report.not_built(clip.file, kind, "this kind of tensor is not known");
  }
}

void verify_filters(const std::string& name, const Tensor& expected, VerifyReport& report) {
  const int64_t bins = name.ends_with("128") ? 128 : 80;
  const std::vector<double> filters = mel_filters({.bins = bins});
  const std::vector<float> rounded(filters.begin(), filters.end());
  report.compare("filters", name, expected, tensor_of(rounded).view({-1, bins}), {.max = 1e-9});
}

}  // namespace

void verify_audio(const fs::path& folder, VerifyReport& report) {
  const Weights stored = Weights::open(folder / "reference.safetensors");
  std::vector<std::string> names;
  for (const auto& spec : stored.specs()) names.push_back(spec.name);
  std::sort(names.begin(), names.end());
  Clip clip;
  for (const auto& name : names) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos) {
      verify_filters(name, stored.read(name), report);
      continue;
    }
    const std::string file = name.substr(0, slash);
    const fs::path path = folder / "audio" / file;
    if (file != clip.file) {
      const bool has_samples = std::binary_search(names.begin(), names.end(), file + "/resampled");
      clip = {file, load_audio(path.string(), file), has_samples ? stored.read(file + "/resampled") : Tensor()};
    }
    verify_clip(clip, name.substr(slash + 1), stored.read(name), path, report);
  }
}

}  // namespace lockstep
