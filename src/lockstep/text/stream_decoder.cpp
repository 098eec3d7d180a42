#include <utility>

#include "lockstep/text/sentencepiece/piece_stream.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/text/tokenizer_impl.h"

namespace lockstep {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {
  if (const auto* const steps = std::get_if<PieceSteps>(&tokenizer.impl_->steps)) {
    pieces_ = std::make_unique<PieceStream>(*steps, skip_special_tokens);
  }
}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(int32_t id) {
  if (pieces_) return pieces_->push(id);
  ids_.push_back(id);
  const auto& steps = std::get<JsonSteps>(tokenizer_.impl_->steps);
  if (!steps.decoder().is_local()) return {};  // until the end, and not looked at with each
  CertainText certain = steps.decoder().decode_certain(steps.tokens(ids_, skip_special_tokens_), at_start_);
  std::string fresh = certain.text.substr(printed_bytes_);
  printed_bytes_ = certain.text.size();
  // The ids may be forgotten once nothing of them is open and a character stands before the next token's space.
  if (certain.complete && (!at_start_ || !certain.text.empty())) {
    ids_.clear();
    printed_bytes_ = 0;
    at_start_ = false;
  }
  return fresh;
}

std::string StreamDecoder::finish() {
  if (pieces_) return pieces_->finish();
  const auto& steps = std::get<JsonSteps>(tokenizer_.impl_->steps);
  std::string rest = steps.decoder().decode(steps.tokens(ids_, skip_special_tokens_), at_start_).substr(printed_bytes_);
  ids_.clear();
  printed_bytes_ = 0;
  at_start_ = true;
  return rest;
}

}  // namespace lockstep
