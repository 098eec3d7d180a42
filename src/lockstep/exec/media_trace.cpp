#include "lockstep/exec/media_trace.h"

#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>

namespace lockstep {

MediaTrace::MediaTrace(const std::vector<std::string>& slots, std::shared_ptr<const MediaOutputs> given)
    : inputs_(slots.begin(), slots.end()), given_(std::move(given)) {}

bool MediaTrace::sees_media_alone(const Block& block, const Flow& flow) const {
  return !block.always_runs() && std::ranges::all_of(block.reads(), [&](const std::string& slot) {
    return inputs_.contains(slot) || made_.contains(slot) || !flow.has(slot);
  });
}

bool MediaTrace::skips(size_t step, const Block& block, Flow& flow) {
  if (inputs_.empty()) return false;
  if (sees_media_alone(block, flow)) {
    made_.insert(block.writes().begin(), block.writes().end());
    return given_ != nullptr;
  }
  if (given_ != nullptr) {
    if (const auto found = given_->find(step); found != given_->end()) flow.put(Flow(found->second));
  } else {
    for (const auto& slot : block.reads()) {
      if (const Tensor* value = made_.contains(slot) ? flow.find(slot) : nullptr) kept_[step].set(slot, *value);
    }
  }
  for (const auto& slot : block.writes()) {  // not the media's any more
    inputs_.erase(slot);
    made_.erase(slot);
  }
  return false;
}

std::shared_ptr<const MediaOutputs> MediaTrace::outputs() const {
  if (given_ != nullptr || kept_.empty()) return given_;
  return std::make_shared<const MediaOutputs>(kept_);
}

}  // namespace lockstep
