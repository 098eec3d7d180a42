// Processors from checkpoint folders.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/clip_image.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/text/new_tokens.h"
#include "lockstep/zoo/chat_processor.h"

namespace lockstep {
namespace {

HfConfig optional_file(const std::filesystem::path& dir, const char* name) {
  const auto path = dir / name;
  return {std::filesystem::exists(path) ? read_json(path) : Json::object(), path.string()};
}

/// config.json says it for the whole model or, where it leaves it out, for its language model, as transformers takes it.
HfConfig config_of_stop_tokens(const std::filesystem::path& dir) {
  HfConfig config = optional_file(dir, "config.json");
  for (const char* part : {"thinker_config", "text_config"}) {
    if (config.has("eos_token_id") || !config.has(part)) continue;
    config = config.at(part);
  }
  return config;
}

std::vector<int32_t> stop_tokens_of(const std::filesystem::path& dir) {
  std::vector<int32_t> ids;
  for (const HfConfig& config : {optional_file(dir, "generation_config.json"), config_of_stop_tokens(dir)}) {
    if (!config.has("eos_token_id")) continue;
    for (const int64_t id : config.integers("eos_token_id")) {
      if (id < -1 || id > INT32_MAX) {
        throw checkpoint_error(fmt::format("{}: eos_token_id: expected ids of tokens, found {}", config.where(), id));
      }
      ids.push_back(static_cast<int32_t>(id));
    }
    break;
  }
  return ids;
}

constexpr const char* kCopyTokenizer =
    "copy the tokenizer's files from the released model (added_tokens.json among them)";

/// Behind other words, as what stands for media does.
bool is_read_as(const Tokenizer& tokenizer, const std::string& text, int32_t token) {
  return tokenizer.encode(text, {.continues = true}) == std::vector{token};
}

}  // namespace

TokenizerFolder tokenizer_of(const ModelPlace& place) {
  if (place.new_tokens.empty()) return place.folder;
  return {place.folder, files_with_tokens(place.folder, place.new_tokens)};
}

ChatParts load_chat_parts(const ModelPlace& place, std::string_view template_of_family, ChatTemplate::Reader reader) {
  const std::filesystem::path& dir = place.folder;
  const bool own = ChatTemplate::stands_in(dir);
  const std::string missing = own || !template_of_family.empty() ? "" : dir.string();
  return {
      .tokenizer = Tokenizer::load(tokenizer_of(place)),
      .chat = own ? ChatTemplate::load(dir, reader) : ChatTemplate(template_of_family, "the family's chat template"),
      .stop_tokens = stop_tokens_of(dir),
      .media = {},
      .speech = {},
      .without_template = missing};
}

std::string placeholder_of(const Tokenizer& tokenizer, int32_t token, const std::string& where) {
  std::string text = tokenizer.token_of(token);
  if (!text.empty() && is_read_as(tokenizer, text, token)) return text;
  throw checkpoint_error(
      fmt::format("{}: expected {} to be a token that the tokenizer adds, found {}", where, token,
                  text.empty() ? "no such token" : fmt::format("\"{}\", which it reads as text", text)),
      kCopyTokenizer);
}

int32_t own_token(const Tokenizer& tokenizer, const std::string& text, const std::string& where) {
  const auto id = tokenizer.id_of(text);
  if (id && is_read_as(tokenizer, text, *id)) return *id;
  throw checkpoint_error(fmt::format("{}: expected \"{}\" to be a token that the tokenizer adds, found {}", where, text,
                                     id ? "one that it reads as text" : "no such token"),
                         kCopyTokenizer);
}

int32_t token_of_folder(const ModelPlace& place, const std::string& text, int64_t vocab) {
  const std::filesystem::path& dir = place.folder;
  const int32_t id = own_token(Tokenizer::load(tokenizer_of(place)), text, dir.string());
  if (id < vocab) return id;
  throw checkpoint_error(
      fmt::format("{}: expected the token \"{}\" below vocab_size {}, found {}", dir.string(), text, vocab, id),
      kCopyTokenizer);
}

HfConfig picture_config(const std::filesystem::path& dir, const std::vector<std::string>& files,
                        const std::string& part) {
  // Where transformers 5 puts it; what stands beside it is of an older version.
  const HfConfig processor = optional_file(dir, "processor_config.json");
  if (processor.has(part)) return processor.at(part);
  for (const auto& file : files) {
    if (std::filesystem::exists(dir / file)) return optional_file(dir, file.c_str());
  }
  throw checkpoint_error(fmt::format("{}: expected the file, or \"{}\" in {}, found neither",
                                     (dir / files.back()).string(), part, processor.where()),
                         fmt::format("copy {} from the released model", files.back()));
}

std::unique_ptr<Processor> load_text_processor(const ModelPlace& place) {
  ChatParts parts = load_chat_parts(place, {}, ChatTemplate::Reader::kTokenizer);
  parts.begins_conversations = false;
  return std::make_unique<ChatProcessor>(std::move(parts));
}

std::unique_ptr<Processor> load_image_processor(const ModelPlace& place, const PatchRules& rules) {
  const std::filesystem::path& dir = place.folder;
  const HfConfig picture = picture_config(dir, {"preprocessor_config.json"}, "image_processor");
  const ClipImageConfig config = read_clip_image_config(picture.json(), picture.where());
  const HfConfig processor = optional_file(dir, "processor_config.json");
  const int64_t patch = processor.size("patch_size", rules.patch);
  const std::string usual = rules.drops_class_token ? "default" : "full";
  const bool drops = processor.text("vision_feature_select_strategy", usual) == "default";
  const int64_t extra =
      processor.size("num_additional_image_tokens", rules.extra_tokens, {.least = 0}) - (drops ? 1 : 0);
  const auto prepare = [config, patch, preparing = picture.where()](const LoadedMedium& medium, const MediaOptions&,
                                                                    const std::string& where) {
    MediaBlock pixels = clip_pixels(medium.frames.at(0), config, where);
    if (pixels.shape[2] >= patch && pixels.shape[3] >= patch) return std::vector{std::move(pixels)};
    throw data_error(fmt::format("{}: expected a picture with at least one patch of {}x{} pixels, found {}x{} once it "
                                 "is prepared",
                                 where, patch, patch, pixels.shape[3], pixels.shape[2]),
                     fmt::format("{} says how pictures are prepared (size, crop_size)", preparing));
  };
  const auto num_tokens = [patch, extra, where = picture.where()](const MediaBlock& pixels) {
    const int64_t tokens = (pixels.shape[2] / patch) * (pixels.shape[3] / patch) + extra;
    if (tokens > 0) return tokens;
    throw checkpoint_error(fmt::format("{}: pictures of {}x{} pixels have no patch of {}x{}", where, pixels.shape[3],
                                       pixels.shape[2], patch, patch),
                           "crop_size must be the image_size of config.json's vision_config");
  };
  ChatParts parts = load_chat_parts(place);
  parts.media.kinds[Modality::kImage] = {
      .placeholder = placeholder_of(parts.tokenizer, rules.token, (dir / "config.json").string()),
      .prepare = prepare,
      .spell = filled_with(rules.token, num_tokens)};
  return std::make_unique<ChatProcessor>(std::move(parts));
}

}  // namespace lockstep
