// Works that were begun without being awaited, and of which nobody tells when they are through: Gloo's sends and receives. When a thread
// waits for one, this tells which call it is.
//
// Thread rules: any thread may call. A work is known by its address alone: who keeps one, even weakly, keeps its tensors.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "awaited_works.h"

namespace lockstep::python {

class SilentWorks {
 public:
  bool any() const { return any_.load(std::memory_order_acquire); }
  void note(const void* work, const WatchedCall& call);
  /// It is not known any more. nullopt: it never was, or of too many.
  std::optional<WatchedCall> take(const void* work);
  /// All of this group.
  void forget(int group);

 private:
  static constexpr size_t kMost = 4096;  // who waits for none of them is not watched there
  std::mutex mutex_;
  std::unordered_map<const void*, WatchedCall> calls_;
  std::atomic<bool> any_{false};  // nearly always there is none, and each call asks
};

}  // namespace lockstep::python
