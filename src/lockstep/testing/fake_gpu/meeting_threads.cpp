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
  // NOLINTNEXTLINE(modernize-avoid-c-arrays)
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  bool ended = false;
};

struct Block {
  const std::function<void()>& play;
  std::vector<Fiber> fibers;
  size_t current = 0;
  ucontext_t home{};
  std::exception_ptr error;
};
thread_local Block* playing = nullptr;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void begin() {
  Block& mine = *playing;
  try {
    mine.play();
  } catch (...) {
    mine.error = std::current_exception();
  }
  Fiber& fiber = mine.fibers[mine.current];
  fiber.ended = true;
  ::swapcontext(&fiber.context, &mine.home);
}

/// By itself: what returns twice is in no function with much else.
[[gnu::noinline]] void prepare(Fiber& fiber) {
  ::getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  ::makecontext(&fiber.context, &begin, 0);
}

}  // namespace

void play_together(int threads, bool last_first, const std::function<void(int thread)>& turn_of,
                   const std::function<void()>& play) {
  Block block{.play = play, .fibers = std::vector<Fiber>(static_cast<size_t>(threads)), .error = nullptr};
  std::vector<size_t> order(block.fibers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (last_first) std::ranges::reverse(order);
  std::ranges::for_each(block.fibers, prepare);
  playing = &block;
  while (!std::ranges::all_of(block.fibers, &Fiber::ended)) {
    for (const size_t i : order) {
      if (block.fibers[i].ended) continue;
      block.current = i;
      turn_of(static_cast<int>(i));
      ::swapcontext(&block.home, &block.fibers[i].context);
    }
  }
  playing = nullptr;
  if (block.error) std::rethrow_exception(block.error);
}

void wait_for_others() {
  if (playing != nullptr) ::swapcontext(&playing->fibers[playing->current].context, &playing->home);
}

}  // namespace lockstep::fake_gpu
