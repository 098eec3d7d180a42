// Streams and events of the fake GPU: a thread with a queue each, ordered by events alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace lockstep::fake_gpu {

/// Moments of streams, counted up: the n-th is over when its stream has come to it.
class Event {
 public:
  uint64_t begin();  // the moment that now counts
  void pass(uint64_t moment);
  bool over() const;
  std::chrono::steady_clock::time_point passed_at() const;  // its newest moment, by the device's clock
  uint64_t newest() const;
  void wait_for(uint64_t moment);

 private:
  mutable std::mutex mutex_;
  std::condition_variable passed_cv_;
  uint64_t begun_ = 0, passed_ = 0;
  std::chrono::steady_clock::time_point passed_at_{};
};

/// Calls run in the order in which they were pushed, on a thread of their own.
class Stream {
 public:
  using Call = std::function<void()>;
  Stream(int device, int64_t id);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void push(Call call);
  void check_health();  // throws what a call threw: as a GPU does, at some later call
  void synchronize();   // the caller's thread waits until all is done; throws likewise
  bool idle() const;

 private:
  void run();
  void become_idle(const std::exception_ptr& broken = nullptr);

  const int device_;
  const bool is_default_;
  mutable std::mutex mutex_;
  std::condition_variable wakes_;
  std::deque<Call> calls_;
  bool busy_ = true, ends_ = false;  // busy with its beginning
  std::exception_ptr broken_;
  std::thread thread_;
};

/// The streams of all devices: 0 is a device's default one.
inline constexpr int64_t kStreams = 8;
Stream& stream_of(int device, int64_t id);
void make_streams(int devices);
void synchronize_device(int device);

}  // namespace lockstep::fake_gpu
