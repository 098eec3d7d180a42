#include "lockstep/cuda/backend_nccl.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "lockstep/comm/cuda_library.h"  // kNcclStagingBytes

namespace lockstep {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);  // between looks at the calls under way

using C10Work = c10::intrusive_ptr<c10d::Work>;
using Group = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

/// Follows launched calls until the device has done them. Owns the decision to abort.
class Watcher {
 public:
  Watcher(Group group, Clock::duration patience)
      : group_(std::move(group)), patience_(patience), thread_([this](const std::stop_token& stop) { run(stop); }) {}

  void watch(const C10Work& work) {
    const std::lock_guard lock(mutex_);
    calls_.push_back({work, Deadline(patience_)});
  }

  /// Throws when the group is not usable any more.
  void check() const {
    if (late_) throw CommTimeout{"a call on the GPU broke or did not end in time, and was aborted"};
    if (aborted_) throw std::runtime_error("aborted on this rank");
  }

  void abort() {
    if (!aborted_.exchange(true)) group_->abort();
  }
  bool aborted() const { return aborted_; }

 private:
  struct Call {
    C10Work work;
    Deadline deadline;
  };

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(kLook);
      if (!aborted_ && oldest_is_late()) {
        late_ = true;
        abort();
      }
    }
  }

  /// Forgets calls that are done; true when one is late or broken.
  bool oldest_is_late() {
    const std::lock_guard lock(mutex_);
    for (; !calls_.empty(); calls_.pop_front()) {
      const Call& call = calls_.front();
      if (!call.work->isCompleted()) return call.deadline.passed();
      if (call.work->exception()) return true;
    }
    return false;
  }

  Group group_;
  Clock::duration patience_;
  std::mutex mutex_;  // guards calls_
  std::deque<Call> calls_;
  std::atomic<bool> late_{false}, aborted_{false};
  std::jthread thread_;
};

class NcclWork final : public Work {
 public:
  NcclWork(C10Work work, Watcher& watcher, std::function<void()> after)
      : work_(std::move(work)), watcher_(watcher), after_(std::move(after)) {}

  void finish(Clock::duration) override {
    watcher_.check();
    work_->wait();  // of the current stream, not of the host
    if (after_) after_();
    watcher_.check();
  }

 private:
  C10Work work_;
  Watcher& watcher_;
  std::function<void()> after_;
};

class NcclBackend final : public Backend {
 public:
  NcclBackend(Group group, const NcclGroup& options)
      : group_(std::move(group)),
        size_(options.size),
        device_(at::kCUDA, static_cast<at::DeviceIndex>(options.device)),
        watcher_(group_, std::chrono::milliseconds(options.patience_ms)) {}

  ~NcclBackend() override {
    if (!watcher_.aborted()) group_->shutdown();
  }

  std::unique_ptr<Work> all_gather(const Tensor& full, const Tensor& shard) override {
    watcher_.check();
    Tensor out = on_device(full), in = shard.to(device_);
    return started(group_->_allgather_base(out, in), copy_back(full, out));
  }

  /// All-to-all, then a sum in rank order: NCCL's own reduce-scatter adds in an order that depends on its algorithm.
  std::unique_ptr<Work> reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate) override {
    watcher_.check();
    Tensor in = staged.to(device_), received = at::empty(in.sizes(), in.options());
    std::vector<int64_t> even;
    return started(group_->alltoall_base(received, in, even, even), [=, size = size_] {
      const Tensor parts = received.view({size, -1});
      const Tensor total = accumulate ? at::empty(sum.sizes(), parts.options().dtype(at::kFloat)) : sum;
      total.copy_(parts.select(0, 0));
      for (int64_t r = 1; r < size; ++r) total.add_(parts.select(0, r));
      if (accumulate) sum.add_(total);
    });
  }

  std::unique_ptr<Work> all_reduce(const Tensor& value, bool maximum) override {
    watcher_.check();
    Tensor mine = value.reshape({-1}).to(device_);
    Tensor all = at::empty({mine.numel() * size_}, mine.options());
    return started(group_->_allgather_base(all, mine), [=, size = size_] {
      const Tensor parts = all.view({size, -1});
      Tensor result = maximum ? parts.amax(0) : parts.select(0, 0).clone();
      for (int64_t r = 1; r < size && !maximum; ++r) result.add_(parts.select(0, r));
      value.copy_(result.view(value.sizes()));
    });
  }

  std::unique_ptr<Work> broadcast(const Tensor& value, int root) override {
    watcher_.check();
    std::vector<Tensor> tensors{value.to(device_)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return started(group_->broadcast(tensors, options), copy_back(value, tensors[0]));
  }

  Tensor staging(int64_t numel, int scalar_type) override {
    return at::empty({numel}, at::TensorOptions().dtype(static_cast<at::ScalarType>(scalar_type)).device(device_));
  }
  int64_t max_staging_bytes() const override { return kNcclStagingBytes; }
  std::string name() const override { return "nccl"; }
  void abort() override { watcher_.abort(); }

 private:
  Tensor on_device(const Tensor& tensor) const {
    return tensor.is_cuda() ? tensor : at::empty(tensor.sizes(), tensor.options().device(device_));
  }
  /// Small host tensors travel through the device. The copy back waits for the device, as a host tensor must be
  /// complete.
  static std::function<void()> copy_back(const Tensor& tensor, const Tensor& on_device) {
    if (tensor.is_cuda()) return {};
    return [=] { tensor.copy_(on_device); };
  }
  std::unique_ptr<Work> started(const C10Work& work, std::function<void()> after) {
    watcher_.watch(work);
    return std::make_unique<NcclWork>(work, watcher_, std::move(after));
  }

  Group group_;
  int64_t size_;
  at::Device device_;
  Watcher watcher_;
};

}  // namespace

std::unique_ptr<Backend> make_nccl(const NcclGroup& group) {
  // c10d's own watchdog would end the process with its own words; ours aborts the call and lets it report.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 1);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 1);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(group.patience_ms);
  auto store = c10::intrusive_ptr<c10d::Store>::reclaim_copy(static_cast<c10d::Store*>(group.store));
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), group.rank, group.size, std::move(options));
  nccl->eagerConnectSingleDevice(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(group.device)));
  return std::make_unique<NcclBackend>(std::move(nccl), group);
}

}  // namespace lockstep
