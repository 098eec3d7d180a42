// Processors from checkpoint folders.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/clip_image.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/zoo/chat_processor.h"

namespace lockstep {
namespace {

HfConfig optional_file(const std::filesystem::path& dir, const char* name) {
  const auto path = dir / name;
  return {std::filesystem::exists(path) ? read_json(path) : Json::object(), path.string()};
}

std::vector<int32_t> stop_tokens_of(const std::filesystem::path& dir) {
  std::vector<int32_t> ids;
  for (const char* file : {"generation_config.json", "config.json"}) {
    const HfConfig config = optional_file(dir, file);
    if (!config.has("eos_token_id")) continue;
    for (const int64_t id : config.integers("eos_token_id")) ids.push_back(static_cast<int32_t>(id));
    break;
  }
  return ids;
}

/// preprocessor_config.json, or since transformers 5 a part of processor_config.json.
ClipImageConfig image_config_of(const std::filesystem::path& dir, const HfConfig& processor) {
  const auto path = dir / "preprocessor_config.json";
  if (std::filesystem::exists(path)) return read_clip_image_config(read_json(path), path.string());
  if (processor.has("image_processor")) {
    const HfConfig part = processor.at("image_processor");
    return read_clip_image_config(part.json(), part.where());
  }
  throw checkpoint_error(fmt::format("{}: expected the file, or \"image_processor\" in {}, found neither",
                                     path.string(), processor.where()),
                         "copy preprocessor_config.json from the released model");
}

}  // namespace

std::unique_ptr<Processor> load_text_processor(const std::filesystem::path& dir) {
  return std::make_unique<ChatProcessor>(ChatParts{.tokenizer = Tokenizer::load(dir),
                                                   .chat = ChatTemplate::load(dir),
                                                   .stop_tokens = stop_tokens_of(dir),
                                                   .images = {}});
}

std::unique_ptr<Processor> load_image_processor(const std::filesystem::path& dir, const PatchRules& rules) {
  const HfConfig processor = optional_file(dir, "processor_config.json");
  const ClipImageConfig image = image_config_of(dir, processor);
  const int64_t patch = processor.integer("patch_size", rules.patch);
  const std::string usual = rules.drops_class_token ? "default" : "full";
  const bool drops = processor.text("vision_feature_select_strategy", usual) == "default";
  const int64_t extra = processor.integer("num_additional_image_tokens", rules.extra_tokens) - (drops ? 1 : 0);
  return std::make_unique<ChatProcessor>(
      ChatParts{.tokenizer = Tokenizer::load(dir),
                .chat = ChatTemplate::load(dir),
                .stop_tokens = stop_tokens_of(dir),
                .images = {.token = rules.token,
                           .prepare = [image](const Image& pixels) { return clip_pixels(pixels, image); },
                           .num_tokens =
                               [patch, extra](const PixelBlock& pixels) {
                                 return (pixels.shape[1] / patch) * (pixels.shape[2] / patch) + extra;
                               }}});
}

}  // namespace lockstep
