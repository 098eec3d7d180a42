#include "lockstep/data/unbuilt_media.h"

#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class WithoutMedia final : public Processor {
 public:
  WithoutMedia(std::unique_ptr<Processor> inner, Modalities unbuilt, UnbuiltWords words)
      : inner_(std::move(inner)), unbuilt_(unbuilt), words_(std::move(words)) {}

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
  const SpeechRules* speech() const override { return unbuilt_.has(Modality::kSpeech) ? nullptr : inner_->speech(); }

 private:
  void refuse_media(const Sample& sample) const {
    const std::string media = describe_media(sample, unbuilt_);
    if (media.empty()) return;
    throw data_error(fmt::format("{}: expected {}, found {}: {}", sample.where, words_.expected, media, words_.reason),
                     "leave --no_build out, or take such rows out of the data");
  }

  std::unique_ptr<Processor> inner_;
  Modalities unbuilt_;
  UnbuiltWords words_;
};

}  // namespace

std::unique_ptr<Processor> without_media(std::unique_ptr<Processor> inner, Modalities unbuilt, UnbuiltWords words) {
  return std::make_unique<WithoutMedia>(std::move(inner), unbuilt, std::move(words));
}

}  // namespace lockstep
