// Media files through a family's own processor, against the pixels that transformers made of them.
#include <algorithm>
#include <map>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/image_keys.h"
#include "lockstep/model/batch.h"
#include "lockstep/session/media_environment.h"
#include "lockstep/tensor/make.h"
#include "lockstep/verify/model.h"
#include "lockstep/verify/parts.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

struct Media {
  std::vector<std::string> images;       // file names
  std::vector<Video> videos;             // frames as paths
  std::vector<std::string> sounds = {};  // file names
};

/// "media" of reference.json: file names, or an object with images, sounds and the frames of one video.
Media media_of(const fs::path& folder, const Json& meta) {
  Media media;
  const Json& said = meta.at("media");
  media.images = (said.is_array() ? said : said.value("images", Json::array())).get<std::vector<std::string>>();
  if (said.is_object()) media.sounds = said.value("audio", Json::array()).get<std::vector<std::string>>();
  if (!said.is_object() || !said.contains("video_frames")) return media;
  const std::string range = said["video_frames"].get<std::string>();  // first..last
  const size_t dots = range.find("..");
  Video video{.frames = {}, .fps = said.value("video_fps", 0.0)};
  for (const auto& entry : fs::directory_iterator(folder / "media")) {
    const std::string name = entry.path().filename().string();
    if (name >= range.substr(0, dots) && name <= range.substr(dots + 2)) video.frames.push_back(entry.path().string());
  }
  std::sort(video.frames.begin(), video.frames.end());
  if (!video.frames.empty()) media.videos.push_back(std::move(video));
  return media;
}

/// Of log-mel features made from a file. Source: the oracle's README, "Recommended tolerances", with room for decoding.
constexpr Tolerance kMelTolerance{.max = 1e-3};

/// All files as one question, images first, sounds last.
std::vector<MediaBlock> prepared(const fs::path& folder, const Family& family, const Media& media) {
  Sample sample;
  sample.where = (folder / "media").string();
  std::string text;
  for (const auto& name : media.images) {
    text += "<image>";
    sample.images.push_back((folder / "media" / name).string());
  }
  for (size_t i = 0; i < media.videos.size(); ++i) text += "<video>";
  sample.videos = media.videos;
  for (const auto& name : media.sounds) {
    text += "<audio>";
    sample.audios.push_back((folder / "media" / name).string());
  }
  sample.messages = {{.role = "user", .content = text + "?"}};
  return family.processor(folder / "checkpoint")->prompt_features(sample, {}).media;
}

Tensor tensor_of(const MediaBlock& block) { return from_values(std::span<const float>(block.values), block.shape); }

/// The recorded media of one kind, if they are as many as the files.
void compare_kind(const std::string& name, const char* kind, const std::vector<MediaBlock>& recorded,
                  std::span<const MediaBlock> files, const std::vector<std::string>& names, double std,
                  VerifyReport& report) {
  if (recorded.empty()) return;
  // Recorded tiles stand one by one.
  const bool tiled =
      std::ranges::any_of(files, [](const MediaBlock& file) { return file.shape.size() == 4 && file.shape[0] > 1; });
  if (recorded.size() != files.size() || names.empty() || tiled) {
    report.not_compared(name, fmt::format("{} from media", kind), "the JSON does not say which files these are");
    return;
  }
  const bool whole = files.size() == names.size();  // else a file is several blocks
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string file = whole ? names[i] : fmt::format("the files, block {}", i);
    report.compare(name, fmt::format("{} from {}", kind, file), tensor_of(recorded[i]), tensor_of(files[i]),
                   pixel_tolerance(whole ? std::vector{names[i]} : names, std));
    if (recorded[i].facts.empty()) continue;
    report.measured(name, fmt::format("facts of {}", file), recorded[i].facts == files[i].facts ? 0 : 1, 0);
  }
}

/// Recorded clips may be filled up to the longest of their batch: what was recorded of them stands in front.
void compare_sounds(const std::string& name, const std::vector<MediaBlock>& recorded, std::span<const MediaBlock> files,
                    const std::vector<std::string>& names, VerifyReport& report) {
  if (recorded.empty()) return;
  if (recorded.size() != files.size()) {
    report.not_compared(name, "audio from media", "the JSON does not say which files these are");
    return;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const Tensor theirs = tensor_of(recorded[i]), ours = tensor_of(files[i]);
    report.compare(name, fmt::format("audio from {}", names[i]),
                   theirs.narrow(0, 0, std::min(theirs.size(0), ours.size(0))), ours, kMelTolerance);
  }
}

/// CLIP's where the folder has no file of its own, as a family's pictures are prepared then.
double smallest_std(const fs::path& checkpoint) {
  PixelScale scale;
  if (fs::exists(checkpoint / "preprocessor_config.json") || fs::exists(checkpoint / "processor_config.json")) {
    const HfConfig file = picture_config(checkpoint, {"preprocessor_config.json"}, "image_processor");
    scale.read_scale(ImageKeys(file.json(), file.where()));
  }
  return *std::min_element(scale.std.begin(), scale.std.end());
}

/// "variables" of reference.json: of the environment in which the rows of a case are read.
ProcessOptions options_of(const Json& meta, const std::string& name) {
  ProcessOptions options;
  if (meta.contains("variables") && meta["variables"].contains(name))
    read_media_environment(Env(meta["variables"][name].get<std::map<std::string, std::string>>()), options.media);
  return options;
}

/// The rows that a case was made of, from JSON to the tensors that enter the model.
void compare_rows(const std::string& name, const fs::path& checkpoint, const Json& meta, const Named& inputs,
                  double std, VerifyReport& report) {
  const fs::path folder = checkpoint.parent_path();
  const HfConfig config = HfConfig::load(checkpoint);
  const Family& family = family_of(config);
  const auto processor = family.processor(checkpoint);
  std::vector<Features> ours, theirs = family.rows_of_hf(config, inputs);
  std::vector<std::string> files;
  const ProcessOptions options = options_of(meta, name);
  for (const auto& row : meta["rows"][name]) {
    const Sample sample = sample_from_row(row, fmt::format("{} row {}", name, ours.size()), folder / "media");
    files.insert(files.end(), sample.images.begin(), sample.images.end());
    ours.push_back(processor->prompt_features(sample, options));
  }
  for (auto* all : {&ours, &theirs}) {
    for (auto& row : *all) row.labels.clear();
  }
  const CollateOptions layout{.layout = layout_of(inputs)};
  const Batch found = collate(ours, layout), expected = collate(theirs, layout);
  for (const auto& [slot, value] : expected.flow.entries()) {
    const Tensor* at = found.flow.find(slot);
    if (at == nullptr) {
      report.fails(name, slot + " from rows", "not made of the rows");
    } else {
      report.compare(name, slot + " from rows", value, *at,
                     slot == "pixel_values"   ? pixel_tolerance(files, std)
                     : slot == "audio_values" ? kMelTolerance
                                              : Tolerance{.max = 0});
    }
  }
}

}  // namespace

Tolerance pixel_tolerance(const std::vector<std::string>& files, double std) {
  const bool lossy =
      std::ranges::any_of(files, [](const auto& f) { return f.ends_with(".jpg") || f.ends_with(".jpeg"); });
  return lossy ? Tolerance{.max = 2.01 / 255 / std, .mean = 0.3 / 255 / std} : Tolerance{.max = 0};
}

void verify_media(const fs::path& folder, const Json& meta, const Reference& reference, VerifyReport& report) {
  if (!meta.contains("media")) return;
  const HfConfig config = HfConfig::load(folder / "checkpoint");
  const Family& family = family_of(config);
  const Media media = media_of(folder, meta);
  std::vector<MediaBlock> files;  // not where rows say it all: a family may take one picture alone
  const double std = smallest_std(folder / "checkpoint");
  for (const auto& [name, inputs] : reference.inputs) {
    const std::string variant = variant_of_case(folder, name);
    if (meta.contains("rows") && meta["rows"].contains(name)) {
      compare_rows(name, folder / (variant.empty() ? "checkpoint" : kVariant + variant), meta, inputs, std, report);
      continue;
    }
    std::map<Modality, std::vector<MediaBlock>> kinds;
    for (auto& row : family.rows_of_hf(config, inputs)) {
      for (auto& block : row.media) kinds[block.modality].push_back(std::move(block));
    }
    if (kinds.empty()) continue;
    if (files.empty()) files = prepared(folder, family, media);
    const auto sounds = media.sounds.size(), others = files.size() - sounds;
    const auto all = std::span<const MediaBlock>(files).first(others);
    const auto films = std::ranges::find(all, Modality::kVideo, &MediaBlock::modality) - all.begin();
    const auto pictures = static_cast<size_t>(films);
    compare_kind(name, "image", kinds[Modality::kImage], all.first(pictures), media.images, std, report);
    const std::vector<std::string> frames(media.videos.size(), "the frames");
    compare_kind(name, "video", kinds[Modality::kVideo], all.subspan(pictures), frames, std, report);
    compare_sounds(name, kinds[Modality::kAudio], std::span<const MediaBlock>(files).last(sounds), media.sounds,
                   report);
  }
}

}  // namespace lockstep
