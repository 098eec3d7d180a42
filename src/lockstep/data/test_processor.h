// A processor for tests, of which most ask for features alone.
#pragma once

#include <stdexcept>
#include <vector>

#include "lockstep/data/processor.h"

namespace lockstep::test {

class FeaturesProcessor : public Processor {
 public:
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override {
    return train_features(sample, options);
  }
  const Tokenizer& tokenizer() const override { throw std::logic_error("nobody asks for a tokenizer"); }
  std::vector<int32_t> stop_tokens() const override { return {}; }
  int32_t pad_token() const override { return 0; }
};

}  // namespace lockstep::test
