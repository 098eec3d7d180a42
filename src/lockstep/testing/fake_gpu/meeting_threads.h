// The threads of a GPU's block on one thread of the host: each runs until it waits for the others, then the next. What a block
// shares may be one thread's static memory; a barrier that is missing shows as what a thread reads before another has written it.
#pragma once

#include <functional>
#include <memory>

namespace lockstep::fake_gpu {

class MeetingThreads {
 public:
  /// `last_first`: those of the highest number run first, so that what one order hides the other shows.
  MeetingThreads(int threads, bool last_first);
  ~MeetingThreads();

  /// `play` once for each; `turn_of(thread)` before each time that a thread goes on.
  void run(const std::function<void(int thread)>& turn_of, const std::function<void()>& play);
  /// Of a thread that is being played: until all others wait or have ended.
  void wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::fake_gpu
