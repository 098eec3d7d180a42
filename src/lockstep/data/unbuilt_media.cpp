#include "lockstep/data/unbuilt_media.h"

#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/wrapped_processor.h"

namespace lockstep {
namespace {

class WithoutMedia final : public WrappedProcessor {
 public:
  WithoutMedia(std::unique_ptr<Processor> inner, Modalities unbuilt, UnbuiltWords words)
      : WrappedProcessor(std::move(inner)), unbuilt_(unbuilt), words_(std::move(words)) {}

  Features train_features(const Sample& sample, const ProcessOptions& options) const override {
    refuse_media(sample);
    return inner().train_features(sample, options);
  }
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override {
    refuse_media(sample);
    return inner().prompt_features(sample, options);
  }
  const SpeechRules* speech() const override {
    return unbuilt_.has(Modality::kSpeech) ? nullptr : WrappedProcessor::speech();
  }

 private:
  void refuse_media(const Sample& sample) const {
    const std::string media = describe_media(sample, unbuilt_);
    if (media.empty()) return;
    throw data_error(fmt::format("{}: expected {}, found {}: {}", sample.where, words_.expected, media, words_.reason),
                     words_.cure + ", or take such rows out of the data");
  }

  Modalities unbuilt_;
  UnbuiltWords words_;
};

}  // namespace

std::unique_ptr<Processor> without_media(std::unique_ptr<Processor> inner, Modalities unbuilt, UnbuiltWords words) {
  return std::make_unique<WithoutMedia>(std::move(inner), unbuilt, std::move(words));
}

}  // namespace lockstep
