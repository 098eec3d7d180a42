// Rows of LLaVA 1.5 as its authors write them: Vicuna's or Mistral's conversation, pictures in front of a question, texts
// between them read one by one. Source: haotian-liu/LLaVA llava/conversation.py, mm_utils.py tokenizer_image_token and
// process_images, train/train.py preprocess_multimodal.
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/clip_image.h"
#include "lockstep/data/wrapped_processor.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/llava.h"
#include "lockstep/zoo/registry.h"

namespace lockstep::llava {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\v\f";

/// A message with one picture has it in front, on a line of its own. Of several each stays where it is written, and ends
/// its line: the authors' code knows one alone.
std::string placed(std::string content) {
  const std::string_view mark = media_mark(Modality::kImage);
  const size_t first = content.find(mark);
  if (first == std::string::npos) return content;
  if (content.find(mark, first + mark.size()) == std::string::npos) {
    content.erase(first, mark.size());
    const size_t begin = content.find_first_not_of(kSpaces);
    if (begin == std::string::npos) return std::string(mark);
    return fmt::format("{}\n{}", mark, content.substr(begin, content.find_last_not_of(kSpaces) + 1 - begin));
  }
  for (size_t at = first; at != std::string::npos; at = content.find(mark, at + mark.size())) {
    const size_t next = at + mark.size();
    if (next < content.size() && kSpaces.find(content[next]) == std::string_view::npos) content.insert(next, "\n");
  }
  return content;
}

Sample with_pictures_placed(const Sample& sample) {
  Sample out = sample;
  for (auto& message : out.messages) message.content = placed(std::move(message.content));
  return out;
}

/// conv_llava_plain: a picture and what stands in it. The question's words are not read.
/// Source: haotian-liu/LLaVA train/train.py preprocess_plain.
Sample picture_and_caption(const Sample& sample) {
  const std::string mark(media_mark(Modality::kImage));
  const auto& turns = sample.messages;
  const bool fits = !turns.empty() && turns.size() <= 2 && turns[0].role == "user" &&
                    turns[0].content.find(mark) != std::string::npos && sample.images.size() == 1 &&
                    (turns.size() == 1 || turns[1].role == "assistant");
  if (!fits) {
    throw data_error(
        fmt::format("{}: expected a question with one {} and its answer (--conversation plain), found {} message(s) "
                    "and {} picture(s)",
                    sample.where, mark, turns.size(), sample.images.size()),
        "LLaVA's first stage learns captions alone; conversations are learnt without --conversation plain");
  }
  Sample out = sample;
  out.messages[0].content = mark;
  return out;
}

class PublishedProcessor final : public WrappedProcessor {
 public:
  using Prepare = Sample (*)(const Sample&);
  PublishedProcessor(std::unique_ptr<Processor> whole, Prepare prepare)
      : WrappedProcessor(std::move(whole)), prepare_(prepare) {}

  Features train_features(const Sample& sample, const ProcessOptions& options) const override {
    Features row = inner().train_features(prepare_(sample), options);
    row.sample = sample;
    return row;
  }
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override {
    Features row = inner().prompt_features(prepare_(sample), options);
    row.sample = sample;
    return row;
  }

 private:
  Prepare prepare_;
};

/// conv_llava_plain.
std::string_view plain_template() {
  return R"({%- for message in messages -%}
{{- message['content'] -}}
{%- if message['role'] == 'assistant' -%}{{- '\n' -}}{%- endif -%}
{%- endfor -%}
)";
}

/// conv_vicuna_v1: two separators, a space and the end-of-sequence token.
std::string_view vicuna_v1_template() {
  return R"({%- if messages[0]['role'] != 'system' -%}
{{- 'A chat between a curious user and an artificial intelligence assistant. ' -}}
{{- "The assistant gives helpful, detailed, and polite answers to the user's questions. " -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message['role'] == 'user' -%}{{- 'USER: ' + message['content'] + ' ' -}}
{%- elif message['role'] == 'assistant' -%}{{- 'ASSISTANT: ' + message['content'] + eos_token -}}
{%- else -%}{{- message['content'] + ' ' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'ASSISTANT:' -}}{%- endif -%}
)";
}

/// conv_mistral_instruct: Llama 2's style with nothing between turns.
std::string_view mistral_instruct_template() {
  return R"({%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}{{- ' ' + message['content'] + ' ' + eos_token -}}
{%- elif message['role'] == 'user' and loop.index0 == 1 and messages[0]['role'] == 'system' -%}
{{- '[INST] <<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' + message['content'] + ' [/INST]' -}}
{%- elif message['role'] == 'user' -%}{{- '[INST] ' + message['content'] + ' [/INST]' -}}
{%- endif -%}
{%- endfor -%}
)";
}

/// The tower's own preprocessor_config.json, and what the model's config says of the shape. Throws UserError(kCheckpoint).
ClipImageConfig picture_rules(const HfConfig& file, const ClipConfig& vision) {
  const Tower tower = find_tower(file);
  const HfConfig found = picture_config(tower.pictures, {"preprocessor_config.json"}, "image_processor");
  Json json = found.json();
  json["image_aspect_ratio"] = file.text("image_aspect_ratio", "square");
  const ClipImageConfig rules = read_clip_image_config(json, found.where());
  const bool crops = rules.do_center_crop;
  const int64_t width = crops ? rules.crop_width : rules.width, height = crops ? rules.crop_height : rules.height;
  const bool square = crops || rules.shortest_edge == 0;
  if (square && width == vision.image_size && height == vision.image_size) return rules;
  throw checkpoint_error(
      fmt::format("{}: {}: expected {} x {} (image_size of {}), found {}", found.where(), crops ? "crop_size" : "size",
                  vision.image_size, vision.image_size, tower.vision.where(),
                  square ? fmt::format("{} x {}", width, height) : "pictures of any shape (no crop)"),
      "copy the file from the tower's repository");
}

}  // namespace

std::unique_ptr<Processor> load_published_processor(const ModelPlace& place) {
  const HfConfig file = load_config(place);
  const Config config = read_config(file);
  const bool plain = place.joint.conversation == kPlain;
  ChatParts parts = load_chat_parts(place, config.mistral ? mistral_instruct_template() : vicuna_v1_template());
  if (plain) {
    parts.chat = ChatTemplate(plain_template(), "LLaVA's plain conversation");
    parts.adds_end = false;
  }
  parts.media.kinds[Modality::kImage] = {
      .placeholder = std::string(media_mark(Modality::kImage)),
      .prepare = [rules = picture_rules(file, config.vision)](
                     const LoadedMedium& medium, const MediaOptions&,
                     const std::string& row) { return std::vector{clip_pixels(medium.frames.at(0), rules, row)}; },
      .spell =
          [count = config.tokens_of_picture()](const std::vector<MediaBlock>&, int64_t) {
            return std::vector<MediaRun>{{.token = kFiller, .count = count, .block = 0, .apart = true}};
          }};
  return std::make_unique<PublishedProcessor>(std::make_unique<ChatProcessor>(std::move(parts)),
                                              plain ? picture_and_caption : with_pictures_placed);
}

}  // namespace lockstep::llava
