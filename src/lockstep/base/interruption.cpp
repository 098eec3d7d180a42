#include "lockstep/base/interruption.h"

#include <utility>

namespace lockstep {
namespace {

const std::atomic<bool>*& flag_of_thread() {
  thread_local const std::atomic<bool>* flag = nullptr;
  return flag;
}

}  // namespace

Interrupted::Interrupted() : Error(ExitCode::kInterrupted, "interrupted") {}

Interruptible::Interruptible(const std::atomic<bool>& called_off)
    : before_(std::exchange(flag_of_thread(), &called_off)) {}
Interruptible::~Interruptible() { flag_of_thread() = before_; }

void interruption_point() {
  const auto* flag = flag_of_thread();
  if (flag != nullptr && *flag) throw Interrupted();
}

}  // namespace lockstep
