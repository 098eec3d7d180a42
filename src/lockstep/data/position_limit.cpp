#include "lockstep/data/position_limit.h"

#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/wrapped_processor.h"

namespace lockstep {
namespace {

class LimitedProcessor final : public WrappedProcessor {
 public:
  LimitedProcessor(std::unique_ptr<Processor> inner, const PositionLimit& limit)
      : WrappedProcessor(std::move(inner)), limit_(limit) {}

  Features train_features(const Sample& sample, const ProcessOptions& options) const override {
    return inner().train_features(sample, limited(options));
  }
  Features prompt_features(const Sample& sample, const ProcessOptions& options) const override {
    return inner().prompt_features(sample, limited(options));
  }

 private:
  ProcessOptions limited(ProcessOptions options) const {
    limit_.check_length(options.max_length);
    options.max_positions = limit_.positions;
    return options;
  }

  PositionLimit limit_;
};

}  // namespace

void PositionLimit::check_length(int64_t max_length) const {
  if (!ends || max_length <= positions) return;
  throw usage_error(
      fmt::format(
          "--max_length: expected at most the model's {} positions, found {}: its rope is \"dynamic\", and beyond "
          "them what a row gives depends on the rows before and beside it",
          positions, max_length),
      fmt::format("--max_length {}, or another rope in config.json", positions));
}

std::unique_ptr<Processor> limited_to_positions(std::unique_ptr<Processor> inner, const PositionLimit& limit) {
  if (limit.positions <= 0) return inner;
  return std::make_unique<LimitedProcessor>(std::move(inner), limit);
}

}  // namespace lockstep
