// The processor that chat families share: chat template -> spans -> token ids and labels, images among them.
//
// Example:
//   const auto processor = load_text_processor(dir);
//   Features features = processor->train_features(sample, {.max_length = 2048});
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/data/processor.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/media_rules.h"
#include "lockstep/zoo/spelled_text.h"

namespace lockstep {

struct SpelledRow;

struct ChatParts {
  Tokenizer tokenizer;
  ChatTemplate chat;
  std::vector<int32_t> stop_tokens;        // of generation_config.json; the tokenizer's and the template's are found
  MediaRules media;                        // no kinds: a text family
  std::optional<SpeechRules> speech = {};  // of one that talks
  std::string without_template = {};       // the folder, where it has no chat template; else empty
  bool adds_end = true;                    // the end-of-sequence token behind a last answer that ends with none
  /// The tokenizer's first token also before what a template writes, as transformers' processors do; a tokenizer alone puts it
  /// before plain texts.
  bool begins_conversations = true;
};

class ChatProcessor final : public Processor {
 public:
  explicit ChatProcessor(ChatParts parts);

  /// Labels are the assistants' tokens, up to and including the token that ends the turn; where the template ends the
  /// last turn with none, the end-of-sequence token is put behind it.
  Features train_features(const Sample& sample, const ProcessOptions& options) const override;
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override;
  void require_chat_template() const override;

  const Tokenizer& tokenizer() const override { return parts_.tokenizer; }
  std::vector<int32_t> stop_tokens() const override { return {stops_.begin(), stops_.end()}; }
  int32_t pad_token() const override { return pad_; }
  const SpeechRules* speech() const override { return parts_.speech ? &*parts_.speech : nullptr; }

 private:
  std::vector<TextSpan> rendered_spans(const Sample& sample, const std::vector<bool>& trained) const;
  std::string rendered_prompt(const Sample& sample, size_t count) const;
  Json template_content(const Message& message) const;
  Json template_messages(const Sample& sample, size_t count) const;
  RenderOptions render_options(bool generation_prompt) const;
  MediumFrame frame_of(Modality kind, const std::string& placeholder) const;
  void put_begin_tokens(SpelledRow& row) const;
  void add_span(SpelledRow& row, const TextSpan& span, MediaSpeller& speller, bool last_turn, double weight) const;
  void forget_empty_thinking(SpelledRow& row, size_t begin, std::string_view text, bool continues) const;
  void check_media(const Sample& sample) const;
  std::map<Modality, size_t> marks_in(const Sample& sample, size_t messages) const;
  void check_speech(const Sample& sample) const;
  AnswerSpan last_answer(const Features& features) const;
  Features finish(SpelledRow row, const Sample& sample, const ProcessOptions& options, bool labelled) const;
  std::vector<int32_t> turn_ends() const;
  bool breaks_line_after_image() const;

  ChatParts parts_;
  bool parts_as_lists_ = false;                  // the template reads message content as a list of typed parts
  std::map<Modality, MediumFrame> frames_;       // what the template writes around placeholders
  std::map<Modality, MediumRules> plain_media_;  // where no template writes: placeholders in their frames
  bool mark_takes_break_ = true;                 // the template itself writes the line break that stands beside a mark
  std::set<int32_t> stops_;
  int32_t end_ = -1, pad_ = 0;
};

/// Tokenizer, chat template and generation_config.json. Throws UserError(kCheckpoint).
std::unique_ptr<Processor> load_text_processor(const ModelPlace& place);

/// The place's tokenizer: its folder's, with its new tokens.
TokenizerFolder tokenizer_of(const ModelPlace& place);
/// Tokenizer, chat template and stop tokens of the place, for a family to put its media rules to. A checkpoint without a
/// template takes `template_of_family`; empty: it must have one. Throws UserError(kCheckpoint).
ChatParts load_chat_parts(const ModelPlace& place, std::string_view template_of_family = {},
                          ChatTemplate::Reader reader = ChatTemplate::Reader::kProcessor);
/// The text of the token that media fill. Throws UserError(kCheckpoint) naming `where`, which gave the id, when the
/// tokenizer has no such token of its own.
std::string placeholder_of(const Tokenizer& tokenizer, int32_t token, const std::string& where);
/// The id of a text that the tokenizer reads as one token. Throws UserError(kCheckpoint) naming `where`, which needs it.
int32_t own_token(const Tokenizer& tokenizer, const std::string& text, const std::string& where);
/// The same of the place's tokenizer, where the model must have a row for it: an id below `vocab`.
int32_t token_of_folder(const ModelPlace& place, const std::string& text, int64_t vocab);
/// The part of processor_config.json, or the file of its own, that says how pictures are prepared; `files`: in the
/// order in which they are looked for. Throws UserError(kCheckpoint) when there is none.
HfConfig picture_config(const std::filesystem::path& dir, const std::vector<std::string>& files,
                        const std::string& part);

/// What config.json says; processor_config.json overrules it where it speaks. Source: transformers 5.23 LlavaProcessor.
struct PatchRules {
  int32_t token = -1;
  int64_t patch = 0;
  int64_t extra_tokens = 0;  // beside patches: a class token
  bool drops_class_token = true;
};
std::unique_ptr<Processor> load_image_processor(const ModelPlace& place, const PatchRules& rules);

}  // namespace lockstep
