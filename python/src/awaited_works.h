// Works that tell nobody when they are through, while the thread that has made them waits: Gloo's reduce_scatter since torch 2.15.
//
// Thread rules: any thread may call. A work is asked, and let go, without a lock: it may have its own, or be a person's own class
// that asks for the interpreter's.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep::python {

/// By its group's index in the recorder, and its number there.
struct WatchedCall {
  int group;
  uint64_t seq;
  int64_t entered_ns;

  bool is(const WatchedCall& other) const { return group == other.group && seq == other.seq; }
};

class AwaitedWorks {
 public:
  /// Of this thread, which waits for it at once. Its tensors are kept with it.
  void keep(const WatchedCall& call, const c10::intrusive_ptr<c10d::Work>& work);

  struct Passed {
    WatchedCall call;
    bool broken;
  };
  /// Those that are through, and those of this thread, which has gone on; each is handed out once.
  std::vector<Passed> take_passed();

 private:
  struct Awaited {
    WatchedCall call;
    std::thread::id thread;
    c10::intrusive_ptr<c10d::Work> work;
  };
  std::mutex mutex_;
  std::vector<Awaited> awaited_;
  std::atomic<bool> any_{false};  // nearly always there is none, and each call asks
};

}  // namespace lockstep::python
