#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "lockstep/base/worker.h"
#include "lockstep/comm/device_group.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);   // between looks at the calls under way
constexpr auto kLong = std::chrono::milliseconds(500);  // in a call: others may be late
constexpr auto kLeave = std::chrono::seconds(10);  // at the end, for calls that are queued and that nobody waits for

/// Without the stack that LibTorch adds to its errors.
std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

/// A call under way.
struct Watched {
  std::shared_ptr<DeviceCall> call;
  GpuMoment ready;  // the device has done what was queued before the call
  // Under the watcher's lock.
  std::optional<Clock::time_point> begun{};  // seen: the device stands in it, and not behind other work
  bool over = false;
  QueuedNews news{};
};

/// Follows queued calls until the device is past them. Owns the decision to abort.
class Watcher {
 public:
  Watcher(DeviceGroup& group, std::string device, Clock::duration patience)
      : group_(group),
        device_(std::move(device)),
        patience_(patience),
        worker_("device calls", [this](const std::stop_token& stop) { run(stop); }) {}

  ~Watcher() {
    worker_.request_stop();
    wakes_.notify_all();
  }

  std::shared_ptr<Watched> watch(std::shared_ptr<DeviceCall> call, GpuMoment ready) {
    auto watched = std::make_shared<Watched>(Watched{.call = std::move(call), .ready = std::move(ready)});
    const std::lock_guard lock(mutex_);
    calls_.push_back(watched);
    wakes_.notify_all();
    return watched;
  }

  void tell(Watched& watched, QueuedNews news) {
    const std::lock_guard lock(mutex_);
    if (watched.over) {
      news.passed();
    } else {
      watched.news = std::move(news);
    }
  }

  /// Throws when the group is not usable any more.
  void check() const {
    if (late_) {
      const std::lock_guard lock(mutex_);
      throw CommTimeout{why_.empty() ? "a call on the GPU did not end in time, and was aborted"
                                     : "a call on the GPU broke, and was aborted: " + why_};
    }
    if (aborted_) throw std::runtime_error("aborted on this rank");
  }

  /// Destructors come here while an exception is on its way: what cannot be aborted is left as it is.
  void abort() noexcept {
    if (aborted_.exchange(true)) return;
    try {
      group_.abort();
    } catch (...) {
    }
  }
  bool aborted() const { return aborted_; }

  /// Whether no call is under way any more. Waits for the device a little: the host may be ahead of it.
  bool settled() {
    for (const Deadline deadline(kLeave); !aborted_ && !oldest_is_late() && !deadline.passed();) {
      {
        const std::lock_guard lock(mutex_);
        if (calls_.empty()) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

 private:
  /// A device that cannot be asked is broken too: LibTorch throws from then on.
  void run(const std::stop_token& stop) {
    try {
      stand_on_gpu(device_);  // else the looks below would start the first GPU too, from every rank
      while (!stop.stop_requested() && !aborted_ && !oldest_is_late()) pause(stop);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      why_ = first_line(error.what());
    }
    if (stop.stop_requested() || aborted_) return;
    late_ = true;
    abort();
  }

  void pause(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    wakes_.wait(lock, stop, [&] { return !calls_.empty(); });
    wakes_.wait_for(lock, stop, kLook, [] { return false; });
  }

  /// Forgets calls that are over; true when one is late or broken.
  bool oldest_is_late() {
    const std::lock_guard lock(mutex_);
    for (; !calls_.empty(); calls_.pop_front()) {
      Watched& oldest = *calls_.front();
      const bool passed = oldest.call->passed();  // asked first: asking may be what finds that it broke
      why_ = first_line(oldest.call->failure());
      if (!why_.empty()) return true;
      if (!passed) return is_late(oldest);
      oldest.over = true;
      if (oldest.news.passed) oldest.news.passed();
    }
    return false;
  }

  bool is_late(Watched& call) const {
    const auto now = Clock::now();
    if (!call.begun && call.ready.over()) call.begun = now;
    if (!call.begun) return false;
    const auto stood = now - *call.begun;
    if (stood > kLong && call.news.waits) call.news.waits(*call.begun);
    return stood > patience_;
  }

  DeviceGroup& group_;
  const std::string device_;
  const Clock::duration patience_;
  mutable std::mutex mutex_;  // guards calls_ and what they say, and why_
  std::condition_variable_any wakes_;
  std::deque<std::shared_ptr<Watched>> calls_;
  std::string why_;  // a call broke, in the words of what it broke with
  std::atomic<bool> late_{false}, aborted_{false};
  Worker worker_;
};

class QueuedWork final : public Work {
 public:
  QueuedWork(std::shared_ptr<Watched> watched, Watcher& watcher, std::function<void()> after)
      : watched_(std::move(watched)), watcher_(watcher), after_(std::move(after)) {}

  void finish(Clock::duration) override {
    watcher_.check();
    watched_->call->order_current_stream();
    if (after_) after_();
    watcher_.check();
  }
  bool queued() const override { return true; }
  void follow(QueuedNews news) override { watcher_.tell(*watched_, std::move(news)); }

 private:
  std::shared_ptr<Watched> watched_;
  Watcher& watcher_;
  std::function<void()> after_;
};

class DeviceBackend final : public Backend {
 public:
  DeviceBackend(std::unique_ptr<DeviceGroup> group, const DeviceBackendOptions& options)
      : group_(std::move(group)),
        size_(options.size),
        device_(options.device),
        watcher_(*group_, options.device, options.patience) {}

  /// In good order where the job is over. Else nobody comes to the calls that are under way, for which leaving would wait.
  ~DeviceBackend() override {
    if (watcher_.aborted()) return;
    try {
      const bool in_order = std::uncaught_exceptions() == 0 && watcher_.settled();
      in_order ? group_->leave() : watcher_.abort();
    } catch (...) {  // the job is over, and its result stands: nothing is left that could be told
      watcher_.abort();
    }
  }

  std::unique_ptr<Work> all_gather(const Tensor& full, const Tensor& shard) override {
    watcher_.check();
    const Tensor out = on_device(full), in = to_device(shard);
    return started([&] { return group_->all_gather(out, in); }, in, copy_back(full, out));
  }

  /// All-to-all, then a sum in rank order: a transport's own reduce-scatter adds in an order that depends on its algorithm.
  std::unique_ptr<Work> reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate) override {
    watcher_.check();
    const Tensor in = to_device(staged), received = at::empty(in.sizes(), in.options());
    const auto sum_up = [=, size = size_] {
      const Tensor parts = received.view({size, -1});
      const Tensor total = accumulate ? at::empty(sum.sizes(), parts.options().dtype(at::kFloat)) : sum;
      total.copy_(parts.select(0, 0), /*non_blocking=*/true);
      for (int64_t r = 1; r < size; ++r) total.add_(parts.select(0, r));
      if (accumulate) sum.add_(total);
    };
    return started([&] { return group_->all_to_all(received, in); }, in, sum_up);
  }

  std::unique_ptr<Work> all_reduce(const Tensor& value, bool maximum) override {
    watcher_.check();
    const Tensor mine = to_device(value.reshape({-1}));
    const Tensor all = at::empty({mine.numel() * size_}, mine.options());
    const auto reduce = [=, size = size_] {
      const Tensor parts = all.view({size, -1});
      const Tensor result = maximum ? parts.amax(0) : parts.select(0, 0).clone();
      for (int64_t r = 1; r < size && !maximum; ++r) result.add_(parts.select(0, r));
      value.copy_(result.view(value.sizes()));
    };
    return started([&] { return group_->all_gather(all, mine); }, mine, reduce);
  }

  std::unique_ptr<Work> broadcast(const Tensor& value, int root) override {
    watcher_.check();
    const Tensor there = to_device(value);
    return started([&] { return group_->broadcast(there, root); }, there, copy_back(value, there));
  }

  /// On the device that this thread works for: a rank may drive several.
  Tensor staging(int64_t numel, int scalar_type) override {
    const std::string& here = DeviceMemory::current()->torch_device();
    const c10::Device device = gpu_of(here) ? c10::Device(here) : device_;
    return at::empty({numel}, at::TensorOptions().dtype(static_cast<at::ScalarType>(scalar_type)).device(device));
  }
  int64_t max_staging_bytes() const override { return kDeviceStagingBytes; }
  std::string name() const override { return group_->name(); }
  void abort() override { watcher_.abort(); }

 private:
  Tensor on_device(const Tensor& tensor) const {
    return is_gpu(tensor.device()) ? tensor : at::empty(tensor.sizes(), tensor.options().device(device_));
  }
  Tensor to_device(const Tensor& tensor) const { return is_gpu(tensor.device()) ? tensor : tensor.to(device_); }
  /// Small host tensors travel through the device. The copy back waits for the device, as a host tensor must be
  /// complete.
  static std::function<void()> copy_back(const Tensor& tensor, const Tensor& on_device) {
    if (is_gpu(tensor.device())) return {};
    return [=] { tensor.copy_(on_device); };
  }
  /// `tensor`: one of the call's.
  template <typename Launch>
  std::unique_ptr<Work> started(const Launch& launch, const Tensor& tensor, std::function<void()> after) {
    GpuMoment ready = GpuMoment::now(tensor.device());
    return std::make_unique<QueuedWork>(watcher_.watch(launch(), std::move(ready)), watcher_, std::move(after));
  }

  std::unique_ptr<DeviceGroup> group_;
  const int64_t size_;
  const c10::Device device_;
  Watcher watcher_;
};

}  // namespace

std::unique_ptr<Backend> make_device_backend(std::unique_ptr<DeviceGroup> group, const DeviceBackendOptions& options) {
  return std::make_unique<DeviceBackend>(std::move(group), options);
}

}  // namespace lockstep
