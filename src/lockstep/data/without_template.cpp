#include "lockstep/data/without_template.h"

#include <utility>

#include "lockstep/data/wrapped_processor.h"

namespace lockstep {
namespace {

class PlainProcessor final : public WrappedProcessor {
 public:
  using WrappedProcessor::WrappedProcessor;

  Features train_features(const Sample& sample, const ProcessOptions& options) const override {
    return inner().train_features(sample, plain(options));
  }
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override {
    return inner().prompt_features(sample, plain(options));
  }

 private:
  static ProcessOptions plain(ProcessOptions options) {
    options.use_chat_template = false;
    return options;
  }
};

}  // namespace

std::unique_ptr<Processor> without_chat_template(std::unique_ptr<Processor> inner) {
  return std::make_unique<PlainProcessor>(std::move(inner));
}

}  // namespace lockstep
