#include "awaited_works.h"

#include <iterator>
#include <utility>

namespace lockstep::python {

void AwaitedWorks::keep(const WatchedCall& call, const c10::intrusive_ptr<c10d::Work>& work) {
  const std::lock_guard lock(mutex_);
  awaited_.push_back({call, std::this_thread::get_id(), work});
  any_ = true;
}

std::vector<AwaitedWorks::Passed> AwaitedWorks::take_passed() {
  if (!any_) return {};
  std::vector<Awaited> held, open;
  {
    const std::lock_guard lock(mutex_);
    held = std::exchange(awaited_, {});
    any_ = false;
  }
  std::vector<Passed> passed;
  for (auto& one : held) {
    if (one.thread == std::this_thread::get_id() || one.work->isCompleted()) {
      passed.push_back({one.call, one.work->exception() != nullptr});
    } else {
      open.push_back(std::move(one));
    }
  }
  const std::lock_guard lock(mutex_);
  awaited_.insert(awaited_.end(), std::make_move_iterator(open.begin()), std::make_move_iterator(open.end()));
  any_ = !awaited_.empty();
  return passed;
}

}  // namespace lockstep::python
