#include "lockstep/text/sentencepiece/piece_stream.h"

#include <utility>

namespace lockstep {

PieceStream::PieceStream(const PieceSteps& steps, bool skip_special_tokens)
    : steps_(&steps),
      skip_special_tokens_(skip_special_tokens),
      holds_back_(steps.settings().legacy && !skip_special_tokens),
      pieces_(steps.model()) {}

// InternLM2 cleans what a run spells, whatever its config says.
std::string PieceStream::in_run(const std::string& text, bool at_end) {
  std::string out = text;
  if (steps_->settings().kind == SlowSettings::Kind::kInternLm2) {
    out = clean_run_.push(text);
    if (at_end) out += clean_run_.finish();
  }
  if (!out.empty()) run_has_text_ = true;
  return out;
}

std::string PieceStream::push_in_run(std::string_view token) {
  const SlowSettings& settings = steps_->settings();
  const bool is_llama = settings.kind == SlowSettings::Kind::kLlama;
  std::string out;
  if (run_size_ == 0 && has_parts_ && !has_space_) {
    out = " ";
    has_space_ = true;
  }
  const size_t index = run_size_++;
  if (index == 0 && is_llama && settings.add_prefix_space && token.starts_with(kPieceSpace)) {
    token.remove_prefix(kPieceSpace.size());
  }
  std::string text;
  if (steps_->tokens().special.contains(std::string(token))) {
    if (!after_special_ && settings.legacy && (index > 0 || !is_llama)) text = " ";
    text += std::exchange(held_, {}) + pieces_.finish();
    text += token;
    after_special_ = true;
  } else {
    if (is_llama && after_special_ && index == 1 && settings.add_prefix_space && !token.starts_with(kPieceSpace)) {
      text = " ";
    }
    (holds_back_ ? held_ : text) += pieces_.push(token);
    after_special_ = false;
  }
  return out + in_run(text, false);
}

std::string PieceStream::end_run() {
  std::string text = std::exchange(held_, {}) + pieces_.finish();
  std::string out = in_run(text, true);
  run_size_ = 0;
  after_special_ = false;
  if (std::exchange(run_has_text_, false)) {
    has_parts_ = true;
    has_space_ = false;
  }
  return out;
}

std::string PieceStream::push_apart(const std::string& token) {
  std::string out = run_size_ > 0 ? end_run() : std::string();
  if (has_parts_ && !has_space_) out += " ";
  has_parts_ = true;
  has_space_ = false;
  return out + token;
}

std::string PieceStream::push(int32_t id) {
  const std::string& token = steps_->token_of(id);
  const SlowTokens& tokens = steps_->tokens();
  if (token.empty()) return {};
  if (skip_special_tokens_ && (tokens.special_ids.contains(id) || tokens.special.contains(token))) return {};
  const std::string out = tokens.apart.contains(token) ? push_apart(token) : push_in_run(token);
  return steps_->settings().clean_up_spaces ? clean_all_.push(out) : out;
}

std::string PieceStream::finish() {
  std::string out = run_size_ > 0 ? end_run() : std::string();
  if (steps_->settings().clean_up_spaces) {
    out = clean_all_.push(out);
    out += clean_all_.finish();
  }
  *this = PieceStream(*steps_, skip_special_tokens_);
  return out;
}

}  // namespace lockstep
