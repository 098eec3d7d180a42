#include "lockstep/exec/copier.h"

#include <utility>

namespace lockstep {

Copier::Copier() : worker_("copier", [this](const std::stop_token& stop) { run(stop); }) {}

Copier::~Copier() {
  worker_.request_stop();
  wakes_.notify_all();
}

Copier::Ticket Copier::start(std::function<void()> copy) {
  std::packaged_task<void()> task(std::move(copy));
  Ticket ticket;
  ticket.done_ = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  wakes_.notify_one();
  return ticket;
}

void Copier::run(const std::stop_token& stop) {
  while (true) {
    std::packaged_task<void()> task;
    {
      std::unique_lock lock(mutex_);
      wakes_.wait(lock, stop, [&] { return !queue_.empty(); });
      if (queue_.empty()) return;  // asked to stop, and nothing is left
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace lockstep
