#include "lockstep/python/model_thread.h"

#include <chrono>
#include <exception>

#include <nanobind/nanobind.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interruption.h"
#include "lockstep/python/call_off.h"
#include "lockstep/python/waiting.h"
#include "lockstep/tensor/device_memory.h"

namespace lockstep::python {
namespace nb = nanobind;

struct ModelThread::Task {
  const std::function<void()>* body;  // of who waits
  std::atomic<bool> called_off{false};
  CallOff asked;             // behind Python's lock
  std::exception_ptr error;  // these two behind the mutex
  bool is_done = false;
};

ModelThread::ModelThread()
    : process_(::getpid()),
      worker_(std::make_unique<Worker>("lockstep-model", [this](const std::stop_token& stop) { work(stop); })) {}

bool ModelThread::is_here() const { return process_ == ::getpid(); }

ModelThread::~ModelThread() {
  if (!is_here()) {
    (void)worker_.release();  // it is not in this process: nobody to wait for
    return;
  }
  if (Waiting::called_off()) {  // its lock would not be had again; nobody has asked for anything any more
    worker_.reset();
    return;
  }
  const Waiting here;
  const nb::gil_scoped_release others;
  worker_.reset();
}

void ModelThread::work(const std::stop_token& stop) {
  const OnDevice ours(DeviceMemory::host());
  std::unique_lock lock(mutex_);
  while (came_.wait(lock, stop, [&] { return !tasks_.empty(); })) {
    current_ = tasks_.front();
    tasks_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      const Interruptible scope(current_->called_off);
      interruption_point();  // it may have waited long
      (*current_->body)();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    current_->error = error;
    current_->is_done = true;
    current_.reset();
    done_.notify_all();
  }
}

void ModelThread::run(const std::function<void()>& body) {
  if (!is_here()) {
    throw usage_error(
        "this process was forked from the one that has opened the model, and a model's thread stays there",
        "open the model in the new process, or start processes with multiprocessing.get_context(\"spawn\")");
  }
  constexpr auto kLook = std::chrono::milliseconds(50);  // at signals
  const Waiting here;
  const auto task = std::make_shared<Task>();
  task->body = &body;
  {
    const nb::gil_scoped_release others;
    const std::lock_guard lock(mutex_);
    tasks_.push_back(task);
    came_.notify_all();
  }
  for (bool is_done = false; !is_done;) {
    {
      const nb::gil_scoped_release others;
      std::unique_lock lock(mutex_);
      is_done = done_.wait_for(lock, kLook, [&] { return task->is_done; });
    }
    if (!is_done && (task->asked.asked() || Waiting::called_off())) task->called_off = true;
  }
  task->asked.raise();
  if (task->error) std::rethrow_exception(task->error);
}

void ModelThread::call_off() {
  if (!is_here()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& task : tasks_) task->called_off = true;
  if (current_) current_->called_off = true;
}

void ModelThread::call(const std::function<void()>& python) {
  const nb::gil_scoped_acquire lock;
  try {
    python();
  } catch (nb::python_error& error) {
    current_->asked.take(std::move(error));
    current_->called_off = true;
  }
}

}  // namespace lockstep::python
