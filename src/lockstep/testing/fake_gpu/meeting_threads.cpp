#include "lockstep/testing/fake_gpu/meeting_threads.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <numeric>
#include <vector>

#include <ucontext.h>

namespace lockstep::fake_gpu {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack =
      std::make_unique_for_overwrite<std::byte[]>(kStackBytes);  // NOLINT(modernize-avoid-c-arrays)
  bool ended = false;
};

}  // namespace

struct MeetingThreads::Impl {
  std::vector<Fiber> fibers;
  std::vector<size_t> order;
  size_t current = 0;
  ucontext_t home{};
  std::function<void()> play;
  std::exception_ptr error;

  static thread_local Impl* playing;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

  static void begin() {
    Impl& mine = *playing;
    try {
      mine.play();
    } catch (...) {
      mine.error = std::current_exception();
    }
    Fiber& fiber = mine.fibers[mine.current];
    fiber.ended = true;
    ::swapcontext(&fiber.context, &mine.home);
  }
};

thread_local MeetingThreads::Impl* MeetingThreads::Impl::playing = nullptr;

MeetingThreads::MeetingThreads(int threads, bool last_first) : impl_(std::make_unique<Impl>()) {
  impl_->fibers.resize(static_cast<size_t>(threads));
  impl_->order.resize(impl_->fibers.size());
  std::iota(impl_->order.begin(), impl_->order.end(), size_t{0});
  if (last_first) std::reverse(impl_->order.begin(), impl_->order.end());
}
MeetingThreads::~MeetingThreads() = default;

void MeetingThreads::run(const std::function<void(int thread)>& turn_of, const std::function<void()>& play) {
  Impl& mine = *impl_;
  mine.play = play;
  Impl::playing = &mine;
  for (Fiber& fiber : mine.fibers) {
    ::getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    ::makecontext(&fiber.context, &Impl::begin, 0);
  }
  while (std::ranges::any_of(mine.fibers, [](const Fiber& fiber) { return !fiber.ended; })) {
    for (const size_t i : mine.order) {
      if (mine.fibers[i].ended) continue;
      mine.current = i;
      turn_of(static_cast<int>(i));
      ::swapcontext(&mine.home, &mine.fibers[i].context);
    }
  }
  Impl::playing = nullptr;
  if (mine.error) std::rethrow_exception(mine.error);
}

void MeetingThreads::wait() {
  Impl& mine = *impl_;
  ::swapcontext(&mine.fibers[mine.current].context, &mine.home);
}

}  // namespace lockstep::fake_gpu
