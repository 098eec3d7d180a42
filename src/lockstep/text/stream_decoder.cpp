#include <utility>

#include "lockstep/text/tokenizer.h"
#include "lockstep/text/tokenizer_impl.h"

namespace lockstep {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDecoder::push(int32_t id) {
  ids_.push_back(id);
  const Tokenizer::Impl& impl = *tokenizer_.impl_;
  CertainText certain = impl.decoder.decode_certain(impl.tokens(ids_, skip_special_tokens_), at_start_);
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
  const Tokenizer::Impl& impl = *tokenizer_.impl_;
  std::string rest = impl.decoder.decode(impl.tokens(ids_, skip_special_tokens_), at_start_).substr(printed_bytes_);
  ids_.clear();
  printed_bytes_ = 0;
  at_start_ = true;
  return rest;
}

}  // namespace lockstep
