#include "lockstep/cuda/nccl_group.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace lockstep {
namespace {

/// c10d's watchdog would abort by itself at its own limit, and then sleeps for a minute to write a dump. Ours comes first.
constexpr auto kBehindOurs = std::chrono::minutes(30);

/// For an abort to take effect, before whoever asked for it goes on: it takes a moment, or, where a GPU or a link hangs, for ever.
constexpr auto kAbort = std::chrono::seconds(1);

class NcclCall final : public DeviceCall {
 public:
  explicit NcclCall(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  void order_current_stream() override { work_->wait(); }  // of the current stream, not of the host
  /// LibTorch says of a call that broke, too, that it is completed.
  bool passed() const override { return work_->isCompleted() && !work_->exception(); }
  std::string failure() const override {
    const std::exception_ptr error = work_->exception();
    if (!error) return "";
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      return e.what();
    }
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

/// A rank that drives several GPUs has a communicator for each, which c10d makes at the first call there.
class NcclProcessGroup final : public DeviceGroup {
 public:
  explicit NcclProcessGroup(c10::intrusive_ptr<c10d::ProcessGroupNCCL> group) : group_(std::move(group)) {}

  std::shared_ptr<DeviceCall> all_gather(const Tensor& out, const Tensor& in) override {
    Tensor to = out, from = in;
    return called(group_->_allgather_base(to, from));
  }
  std::shared_ptr<DeviceCall> all_to_all(const Tensor& out, const Tensor& in) override {
    Tensor to = out, from = in;
    std::vector<int64_t> even;
    return called(group_->alltoall_base(to, from, even, even));
  }
  std::shared_ptr<DeviceCall> broadcast(const Tensor& value, int root) override {
    std::vector<Tensor> tensors{value};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return called(group_->broadcast(tensors, options));
  }
  std::string name() const override { return "nccl"; }
  /// By a thread of its own, which nobody joins and which keeps the group: c10d waits as long as a call may take, and throws then.
  void abort() override {
    const auto done = std::make_shared<std::promise<void>>();
    std::thread([group = group_, done] {
      try {
        group->abort();
      } catch (...) {  // the process is on its way out, and says why elsewhere
      }
      done->set_value();
    }).detach();
    done->get_future().wait_for(kAbort);
  }
  void leave() override { group_->shutdown(); }

 private:
  static std::shared_ptr<DeviceCall> called(c10::intrusive_ptr<c10d::Work> work) {
    return std::make_shared<NcclCall>(std::move(work));
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

}  // namespace

std::unique_ptr<DeviceGroup> make_nccl_group(const NcclOptions& wanted) {
  // c10d's own watchdog would end the process with its own words; ours aborts the call and lets it report.
  for (const char* name : {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING",
                           "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_RETHROW_CUDA_ERRORS"}) {
    ::setenv(name, "0", 1);
  }
  // For each call that broke it would sleep a minute under the lock that new calls take, for a dump which is not written; and keep a
  // record of all calls, as the flight ring does. What a person has set stays.
  for (const char* name : {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "TORCH_NCCL_TRACE_BUFFER_SIZE"}) {
    ::setenv(name, "0", 0);
  }
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(wanted.patience_ms) + kBehindOurs;
  auto store = c10::intrusive_ptr<c10d::Store>::reclaim_copy(static_cast<c10d::Store*>(wanted.store));
  auto group =
      c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), wanted.rank, wanted.size, std::move(options));
  group->eagerConnectSingleDevice(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(wanted.device)));
  return std::make_unique<NcclProcessGroup>(std::move(group));
}

}  // namespace lockstep
