// A processor around another: tokens and speech are the inner one's, rows are what a subclass makes of them.
#pragma once

#include <memory>
#include <utility>

#include "lockstep/data/processor.h"

namespace lockstep {

class WrappedProcessor : public Processor {
 public:
  explicit WrappedProcessor(std::unique_ptr<Processor> inner) : inner_(std::move(inner)) {}

  void require_chat_template() const final { inner_->require_chat_template(); }
  const Tokenizer& tokenizer() const final { return inner_->tokenizer(); }
  std::vector<int32_t> stop_tokens() const final { return inner_->stop_tokens(); }
  int32_t pad_token() const final { return inner_->pad_token(); }
  const SpeechRules* speech() const override { return inner_->speech(); }

 protected:
  const Processor& inner() const { return *inner_; }

 private:
  std::unique_ptr<Processor> inner_;
};

}  // namespace lockstep
