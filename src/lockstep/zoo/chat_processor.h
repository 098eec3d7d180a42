// The processor that chat families share: chat template -> spans -> token ids and labels, images among them.
//
// Example:
//   const auto processor = load_text_processor(dir);
//   Features features = processor->train_features(sample, {.max_length = 2048});
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/data/image.h"
#include "lockstep/data/processor.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

/// How a family takes images: each placeholder token that the template writes becomes as many as the image has
/// features.
struct ImageRules {
  int32_t token = -1;
  std::function<PixelBlock(const Image& image)> prepare;
  std::function<int64_t(const PixelBlock& pixels)> num_tokens;
};

struct ChatParts {
  Tokenizer tokenizer;
  ChatTemplate chat;
  std::vector<int32_t> stop_tokens;  // of generation_config.json; the tokenizer's and the template's are found
  ImageRules images;                 // token -1: a text family
};

class ChatProcessor final : public Processor {
 public:
  explicit ChatProcessor(ChatParts parts);

  /// Labels are the assistants' tokens, up to and including the token that ends the turn; where the template ends the
  /// last turn with none, the end-of-sequence token is put behind it.
  Features train_features(const Sample& sample, const ProcessOptions& options) const override;
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override;

  const Tokenizer& tokenizer() const override { return parts_.tokenizer; }
  std::vector<int32_t> stop_tokens() const override { return {stops_.begin(), stops_.end()}; }
  int32_t pad_token() const override { return pad_; }

 private:
  struct Row;
  Json template_messages(const Sample& sample, size_t count) const;
  RenderOptions render_options(bool generation_prompt) const;
  void put_begin_token(Row& row) const;
  void add_span(Row& row, const TextSpan& span, bool last_turn) const;
  void expand_images(Row& row, const Sample& sample) const;
  void check_images(const Sample& sample) const;
  Features finish(Row row, const Sample& sample, const ProcessOptions& options, bool labelled) const;
  std::vector<int32_t> turn_ends() const;

  ChatParts parts_;
  bool parts_as_lists_ = false;  // the template reads message content as a list of typed parts
  std::set<int32_t> stops_;
  int32_t end_ = -1, pad_ = 0;
};

/// Tokenizer, chat template and generation_config.json of `dir`. Throws UserError(kCheckpoint).
std::unique_ptr<Processor> load_text_processor(const std::filesystem::path& dir);

/// What config.json says; processor_config.json overrules it where it speaks. Source: transformers 5.23 LlavaProcessor.
struct PatchRules {
  int32_t token = -1;
  int64_t patch = 0;
  int64_t extra_tokens = 0;  // beside patches: a class token
  bool drops_class_token = true;
};
std::unique_ptr<Processor> load_image_processor(const std::filesystem::path& dir, const PatchRules& rules);

}  // namespace lockstep
