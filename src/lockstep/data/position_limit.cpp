#include "lockstep/data/position_limit.h"

#include <utility>

namespace lockstep {
namespace {

class LimitedProcessor final : public Processor {
 public:
  LimitedProcessor(std::unique_ptr<Processor> inner, int64_t max_positions)
      : inner_(std::move(inner)), max_positions_(max_positions) {}

  Features train_features(const Sample& sample, const ProcessOptions& options) const override {
    return inner_->train_features(sample, limited(options));
  }
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override {
    return inner_->prompt_features(sample, limited(options));
  }
  const Tokenizer& tokenizer() const override { return inner_->tokenizer(); }
  std::vector<int32_t> stop_tokens() const override { return inner_->stop_tokens(); }
  int32_t pad_token() const override { return inner_->pad_token(); }

 private:
  ProcessOptions limited(ProcessOptions options) const {
    options.max_positions = max_positions_;
    return options;
  }

  std::unique_ptr<Processor> inner_;
  int64_t max_positions_;
};

}  // namespace

std::unique_ptr<Processor> limited_to_positions(std::unique_ptr<Processor> inner, int64_t max_positions) {
  if (max_positions <= 0) return inner;
  return std::make_unique<LimitedProcessor>(std::move(inner), max_positions);
}

}  // namespace lockstep
