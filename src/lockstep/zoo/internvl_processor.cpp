// Rows of InternVL: tiles of pictures and frames, and how they are spelled.
#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/tile_image.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/conversation_file.h"
#include "lockstep/zoo/film_choice.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/internvl.h"

namespace lockstep {
namespace {

/// What `template` of a published config.json names. Source: OpenGVLab/InternVL conversation.py.
struct ChatFormat {
  const char* name;
  const char* system;  // where a conversation brings none, and conversation.py of the folder says nothing else
  const char* end;     // of a turn
};
constexpr ChatFormat kFormats[] = {
    {"internvl2_5",
     "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。",
     "<|im_end|>\\n"},
    {"internlm2-chat",
     "你是由上海人工智能实验室联合商汤科技开发的书生多模态大模型，英文名叫InternVL, 是一个有用无害的人工智能助手。",
     "<|im_end|>"},
    {"Hermes-2",
     "你是由上海人工智能实验室联合商汤科技开发的书生多模态大模型，英文名叫InternVL, 是一个有用无害的人工智能助手。",
     "<|im_end|>"}};

/// As a text of a chat template.
std::string quoted_text(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\\' || c == '\'') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out + "'";
}

ChatTemplate published_template(const HfConfig& config) {
  const std::string name = config.text("template", "internvl2_5");
  const auto* format = std::ranges::find_if(kFormats, [&](const ChatFormat& one) { return one.name == name; });
  if (format == std::end(kFormats)) {
    std::string known;
    for (const auto& one : kFormats) known += (known.empty() ? "" : ", ") + std::string(one.name);
    throw checkpoint_error(fmt::format("{}: template: expected one of {}, found \"{}\"", config.where(), known, name),
                           "this chat format is not built; a model asked in another one answers badly");
  }
  // One name stands for several messages: InternVL-Chat-V1-5 presents itself as InternLM, InternVL2 does not.
  const std::string system =
      system_message_in(config.folder() / "conversation.py", name).value_or(std::string(format->system));
  const std::string source = fmt::format(
      "{{%- if messages[0]['role'] != 'system' -%}}\n{{{{- '<|im_start|>system\\n' + {0} + '{1}' -}}}}\n{{%- endif "
      "-%}}\n"
      "{{%- for message in messages -%}}\n"
      "{{{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '{1}' -}}}}\n"
      "{{%- endfor -%}}\n"
      "{{%- if add_generation_prompt -%}}\n{{{{- '<|im_start|>assistant\\n' -}}}}\n{{%- endif -%}}",
      quoted_text(system), format->end);
  return ChatTemplate(source, fmt::format("the chat format {} ({} template)", name, config.where()));
}

TileImageConfig tiles_of(const std::filesystem::path& dir, const std::vector<std::string>& files, const char* part,
                         const InternVisionConfig& vision) {
  const HfConfig file = picture_config(dir, files, part);
  TileImageConfig config = read_tile_image_config(file.json(), file.where());
  if (config.width == vision.image_size && config.height == vision.image_size) return config;
  throw checkpoint_error(fmt::format("{}: size: expected {} x {} (config.json vision_config.image_size), found {} x {}",
                                     file.where(), vision.image_size, vision.image_size, config.width, config.height));
}

/// The authors' own way: Pillow's resizer, ImageNet's colours; preprocessor_config.json says nothing of tiles.
TileImageConfig published_tiles(const HfConfig& config, const InternVisionConfig& vision) {
  TileImageConfig tiles;
  tiles.width = tiles.height = vision.image_size;
  tiles.tiles = config.flag("dynamic_image_size", false);
  tiles.thumbnail = config.flag("use_thumbnail", false);
  tiles.min_tiles = config.size("min_dynamic_patch", 1, {.most = kMostTiles});
  tiles.max_tiles = config.size("max_dynamic_patch", 6, {.least = tiles.min_tiles, .most = kMostTiles});
  tiles.mean = {0.485, 0.456, 0.406};
  tiles.std = {0.229, 0.224, 0.225};
  tiles.backend = ImageBackend::kPillow;
  return tiles;
}

struct Tiles {
  TileImageConfig images, videos;
};

Tiles read_tiles(const std::filesystem::path& dir, const HfConfig& file, const InternvlConfig& config) {
  if (config.published) {
    const TileImageConfig tiles = published_tiles(file, config.vision);
    return {tiles, tiles};
  }
  Tiles tiles{
      tiles_of(dir, {"preprocessor_config.json"}, "image_processor", config.vision),
      tiles_of(dir, {"video_preprocessor_config.json", "preprocessor_config.json"}, "video_processor", config.vision)};
  tiles.videos.backend =
      ImageBackend::kTorchvision;  // whatever images follow: transformers has no other way for videos
  return tiles;
}

/// What a person asks of tiles, whose edge must be whole tokens of `step` pixels.
TileImageConfig asked_of(TileImageConfig tiles, const MediaOptions& options, int64_t step) {
  if (options.tile_size == 0) return tiles;
  if (options.tile_size % step != 0) {
    throw usage_error(
        fmt::format("INPUT_SIZE={}: expected a multiple of {} (pixels of a token's edge)", options.tile_size, step),
        fmt::format("INPUT_SIZE={}", std::max<int64_t>(1, (options.tile_size + step / 2) / step) * step));
  }
  tiles.width = tiles.height = options.tile_size;
  return tiles;
}

int64_t tokens_of(const MediaBlock& tiles, int64_t step) {
  const int64_t edge = tiles.shape[2] / step;
  return tiles.shape[0] * edge * edge;
}

/// <img>, as many tokens as the tiles have, </img>.
void add_picture(std::vector<MediaRun>& runs, int32_t token, int64_t count, size_t block) {
  runs.push_back({.text = kInternvlStart});
  runs.push_back({.token = token, .count = count, .block = block});
  runs.push_back({.text = kInternvlEnd});
}

/// "Frame1: <img>…</img>", a line each.
std::vector<MediaRun> spell_video(const std::vector<MediaBlock>& frames, int32_t token, int64_t step) {
  std::vector<MediaRun> runs;
  for (size_t i = 0; i < frames.size(); ++i) {
    runs.push_back({.text = fmt::format("{}Frame{}: ", i == 0 ? "" : "\n", i + 1)});
    add_picture(runs, token, tokens_of(frames[i], step), i);
  }
  return runs;
}

MediumRules picture_rules(const TileImageConfig& images, const std::string& placeholder, int32_t token, int64_t step) {
  return {.placeholder = placeholder,
          .prepare =
              [images, step](const LoadedMedium& medium, const MediaOptions& options, const std::string& where) {
                TileImageConfig limits = asked_of(images, options, step);
                if (options.max_tiles > 0) limits.max_tiles = options.max_tiles;
                // LLaMA-Factory calls the image processor alone, which cuts where crop_to_patches asks for it.
                if (options.as_llama_factory) limits.tiles = options.max_tiles > 0;
                limits.min_tiles = std::min(limits.min_tiles, limits.max_tiles);
                return std::vector{tile_pixels(medium.frames.at(0), limits, where)};
              },
          .spell =
              [token, step](const std::vector<MediaBlock>& blocks, int64_t) {
                std::vector<MediaRun> runs;
                add_picture(runs, token, tokens_of(blocks.at(0), step), 0);
                return runs;
              }};
}

MediumRules video_rules(const TileImageConfig& videos, int32_t token, int64_t step) {
  return {.placeholder = kInternvlVideo,
          .prepare =
              [videos, step](const LoadedMedium& medium, const MediaOptions& options, const std::string& where) {
                TileImageConfig limits = asked_of(videos, options, step);
                limits.min_tiles = 1;
                limits.max_tiles = std::max<int64_t>(1, options.video_max_tiles);
                std::vector<MediaBlock> frames;
                for (const Image& frame : medium.frames) {
                  frames.push_back(tile_pixels(frame, limits, where));
                  frames.back().modality = Modality::kVideo;
                }
                return frames;
              },
          .spell = [token, step](const std::vector<MediaBlock>& frames,
                                 int64_t) { return spell_video(frames, token, step); },
          .film = {.choose = segment_middles, .each_alone = true}};
}

}  // namespace

int32_t internvl_image_token(const InternvlConfig& config, const ModelPlace& place) {
  return config.image_token >= 0 ? config.image_token : token_of_folder(place, kInternvlContext, config.text.vocab);
}

std::unique_ptr<Processor> load_internvl_processor(const ModelPlace& place) {
  const std::filesystem::path& dir = place.folder;
  const HfConfig file = HfConfig::load(place);
  const InternvlConfig config = read_internvl_config(file);
  const int64_t step = config.vision.patch * config.merge;
  const int32_t token = internvl_image_token(config, place);
  const Tiles tiles = read_tiles(dir, file, config);
  ChatParts parts = load_chat_parts(place, internvl_template());
  if (config.published) {
    parts.chat = published_template(file);  // what the tokenizer brings is the text model's
    parts.media.front_ends_lines = true;
  }
  const std::string context = placeholder_of(parts.tokenizer, token, file.where());
  parts.media.boxes.ref = [](const std::string& ref, bool) { return "<ref>" + ref + "</ref>"; };
  parts.media.boxes.box = [](const std::vector<int64_t>& numbers, bool) {
    return fmt::format("<box>[[{}]]</box>", fmt::join(numbers, ", "));
  };
  parts.media.kinds[Modality::kImage] = picture_rules(tiles.images, context, token, step);
  parts.media.kinds[Modality::kVideo] = video_rules(tiles.videos, token, step);
  return std::make_unique<ChatProcessor>(std::move(parts));
}

}  // namespace lockstep
