#include "lockstep/testing/fake_gpu/stream.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "lockstep/testing/fake_gpu/memory.h"
#include "lockstep/testing/fake_gpu/state.h"

namespace lockstep::fake_gpu {
namespace {

constexpr auto kLook = std::chrono::milliseconds(1);  // whether a hold is over

std::vector<std::unique_ptr<Stream>>& streams() {
  static auto* const all = new std::vector<std::unique_ptr<Stream>>;  // threads may stand in one when the process ends
  return *all;
}

}  // namespace

uint64_t Event::begin() {
  const std::lock_guard lock(mutex_);
  return ++begun_;
}

void Event::pass(uint64_t moment) {
  const std::lock_guard lock(mutex_);
  passed_ = std::max(passed_, moment);
  passed_at_ = std::chrono::steady_clock::now();
  passed_cv_.notify_all();
}

void Event::wait_for(uint64_t moment) {
  std::unique_lock lock(mutex_);
  passed_cv_.wait(lock, [&] { return passed_ >= moment; });
}

bool Event::over() const {
  const std::lock_guard lock(mutex_);
  return passed_ >= begun_;
}

std::chrono::steady_clock::time_point Event::passed_at() const {
  const std::lock_guard lock(mutex_);
  return passed_at_;
}

uint64_t Event::newest() const {
  const std::lock_guard lock(mutex_);
  return begun_;
}

/// Streams begin one behind another, each alone: how many threads LibTorch uses, and the environment that its allocators
/// set, belong to the process, and whoever made the stream goes on to read them.
Stream::Stream(int device, int64_t id) : device_(device), is_default_(id == 0), thread_([this] { run(); }) {
  std::unique_lock lock(mutex_);
  wakes_.wait(lock, [&] { return !busy_; });
}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wakes_.notify_all();
  thread_.join();
}

void Stream::push(Call call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
  wakes_.notify_all();
}

void Stream::check_health() {
  check_unbroken();
  const std::lock_guard lock(mutex_);
  if (broken_) std::rethrow_exception(std::exchange(broken_, nullptr));
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  wakes_.wait(lock, [&] { return calls_.empty() && !busy_; });
  check_unbroken();
  if (broken_) std::rethrow_exception(std::exchange(broken_, nullptr));
}

bool Stream::idle() const {
  const std::lock_guard lock(mutex_);
  return calls_.empty() && !busy_;
}

void Stream::run() {
  at::set_num_threads(1);
  const OnDevice kernels_memory(scratch());
  become_idle();
  while (true) {
    Call call;
    {
      std::unique_lock lock(mutex_);
      wakes_.wait(lock, [&] { return ends_ || !calls_.empty(); });
      if (calls_.empty()) return;
      call = std::move(calls_.front());
      calls_.pop_front();
      busy_ = true;
    }
    const auto delay = state().delay_of(is_default_);
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    while (state().holds_of(is_default_) > 0) std::this_thread::sleep_for(kLook);
    std::exception_ptr broken;
    try {
      call();
    } catch (...) {
      broken = std::current_exception();
    }
    call = nullptr;  // what it holds is freed before others see it done
    become_idle(broken);
  }
}

void Stream::become_idle(const std::exception_ptr& broken) {
  const std::lock_guard lock(mutex_);
  if (broken && !broken_) broken_ = broken;
  busy_ = false;
  wakes_.notify_all();
}

void make_streams(int devices) {
  for (int device = 0; device < devices; ++device) {
    for (int64_t id = 0; id < kStreams; ++id) streams().push_back(std::make_unique<Stream>(device, id));
  }
}

Stream& stream_of(int device, int64_t id) { return *streams().at(static_cast<size_t>(device * kStreams + id)); }

void synchronize_device(int device) {
  for (int64_t id = 0; id < kStreams; ++id) stream_of(device, id).synchronize();
}

}  // namespace lockstep::fake_gpu
