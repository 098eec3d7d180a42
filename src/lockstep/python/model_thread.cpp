#include "lockstep/python/model_thread.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include <nanobind/nanobind.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interruption.h"
#include "lockstep/base/worker.h"
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

/// In one piece, which is left as it is where the thread is lost. In a forked process it is not there, and a condition variable that
/// it waited at would be waited for by who destroys it.
struct ModelThread::Shared {
  void work(const std::stop_token& stop);

  std::mutex mutex;  // guards tasks and what stands in each
  std::condition_variable_any came, done;
  std::deque<std::shared_ptr<Task>> tasks;
  std::shared_ptr<Task> current;        // of the thread
  std::atomic<bool> in_python = false;  // changes behind Python's lock
  Worker worker{"lockstep-model", [this](const std::stop_token& stop) { work(stop); }};
};

ModelThread::ModelThread() : process_(::getpid()), shared_(std::make_unique<Shared>()) {}

bool ModelThread::is_here() const { return process_ == ::getpid(); }

bool ModelThread::is_lost() const { return !is_here() || (Waiting::gave_up() && shared_->in_python); }

ModelThread::~ModelThread() {
  if (is_lost()) {
    (void)shared_.release();
    return;
  }
  if (Waiting::called_off()) {  // its lock would not be had again; nobody has asked for anything any more
    shared_.reset();
    return;
  }
  const Waiting here;
  const WithoutPython others;
  shared_.reset();
}

void ModelThread::Shared::work(const std::stop_token& stop) {
  const OnDevice ours(DeviceMemory::host());
  std::unique_lock lock(mutex);
  while (came.wait(lock, stop, [&] { return !tasks.empty(); })) {
    current = tasks.front();
    tasks.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      const Interruptible scope(current->called_off);
      interruption_point();  // it may have waited long
      (*current->body)();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    current->error = error;
    current->is_done = true;
    current.reset();
    done.notify_all();
  }
}

void ModelThread::run(const std::function<void()>& body) {
  if (!is_here()) {
    throw usage_error(
        "this process was forked from the one that has opened the model, and a model's thread stays there",
        "open the model in the new process, or start processes with multiprocessing.get_context(\"spawn\")");
  }
  if (is_lost()) throw usage_error("this program ends, and the model is in its on_event, which has not returned");
  constexpr auto kLook = std::chrono::milliseconds(50);  // at signals
  const Waiting here;
  const auto task = std::make_shared<Task>();
  task->body = &body;
  {
    const WithoutPython others;
    const std::lock_guard lock(shared_->mutex);
    shared_->tasks.push_back(task);
    shared_->came.notify_all();
  }
  for (bool is_done = false; !is_done;) {
    {
      const WithoutPython others;
      std::unique_lock lock(shared_->mutex);
      is_done = shared_->done.wait_for(lock, kLook, [&] { return task->is_done; });
    }
    if (!is_done && (task->asked.asked() || Waiting::called_off())) task->called_off = true;
  }
  task->asked.raise();
  if (task->error) std::rethrow_exception(task->error);
}

void ModelThread::call_off() {
  if (is_lost()) return;
  const std::lock_guard lock(shared_->mutex);
  for (const auto& task : shared_->tasks) task->called_off = true;
  if (shared_->current) shared_->current->called_off = true;
}

void ModelThread::call(const std::function<void()>& python) {
  Shared& shared = *shared_;  // the rest may be gone when Python comes back
  const bool was_called = call_python([&] {
    shared.in_python = true;
    try {
      python();
    } catch (nb::python_error& error) {
      shared.current->asked.take(std::move(error));
      shared.current->called_off = true;
    }
    if (!Waiting::given_up()) shared.in_python = false;
  });
  if (!was_called) shared.current->called_off = true;
}

}  // namespace lockstep::python
