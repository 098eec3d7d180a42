#include "silent_works.h"

namespace lockstep::python {

void SilentWorks::note(const void* work, const WatchedCall& call) {
  const std::lock_guard lock(mutex_);
  if (calls_.size() >= kMost) calls_.clear();
  calls_.insert_or_assign(work, call);
  any_.store(true, std::memory_order_release);
}

std::optional<WatchedCall> SilentWorks::take(const void* work) {
  if (!any()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto at = calls_.find(work);
  if (at == calls_.end()) return std::nullopt;
  const WatchedCall call = at->second;
  calls_.erase(at);
  any_.store(!calls_.empty(), std::memory_order_release);
  return call;
}

void SilentWorks::forget(int group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(calls_, [group](const auto& entry) { return entry.second.group == group; });
  any_.store(!calls_.empty(), std::memory_order_release);
}

}  // namespace lockstep::python
