// Copies between host and device memory on a thread of its own, so that they overlap with what runs.
//
// Example:
//   Copier::Ticket ticket = copier.start([&] { store.lend(unit); });
//   …
//   ticket.wait();                      // throws what the copy threw
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>

#include "lockstep/base/worker.h"

namespace lockstep {

class Copier {
 public:
  class Ticket {
   public:
    void wait() {
      if (done_.valid()) done_.get();
    }
    bool active() const { return done_.valid(); }

   private:
    friend class Copier;
    std::future<void> done_;
  };

  Copier();
  ~Copier();  // finishes what has been started

  Ticket start(std::function<void()> copy);

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any wakes_;
  std::deque<std::packaged_task<void()>> queue_;  // guarded by mutex_
  Worker worker_;
};

}  // namespace lockstep
