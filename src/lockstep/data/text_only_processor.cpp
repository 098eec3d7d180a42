#include "lockstep/data/text_only_processor.h"

#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class TextOnlyProcessor final : public Processor {
 public:
  TextOnlyProcessor(std::unique_ptr<Processor> inner, std::string reason)
      : inner_(std::move(inner)), reason_(std::move(reason)) {}

  Features train_features(const Sample& sample, const ProcessOptions& options) const override {
    refuse_media(sample);
    return inner_->train_features(sample, options);
  }
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override {
    refuse_media(sample);
    return inner_->prompt_features(sample, options);
  }
  const Tokenizer& tokenizer() const override { return inner_->tokenizer(); }
  std::vector<int32_t> stop_tokens() const override { return inner_->stop_tokens(); }
  int32_t pad_token() const override { return inner_->pad_token(); }

 private:
  void refuse_media(const Sample& sample) const {
    const std::string media = describe_media(sample);
    if (media.empty()) return;
    throw data_error(fmt::format("{}: expected a row of text alone, found {}: {}", sample.where, media, reason_),
                     "leave --no_build out, or take such rows out of the data");
  }

  std::unique_ptr<Processor> inner_;
  std::string reason_;
};

}  // namespace

std::unique_ptr<Processor> text_only_processor(std::unique_ptr<Processor> inner, std::string reason) {
  return std::make_unique<TextOnlyProcessor>(std::move(inner), std::move(reason));
}

}  // namespace lockstep
