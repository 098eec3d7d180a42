#include "lockstep/testing/fake_gpu/fake_group.h"

#include <cstring>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/testing/fake_gpu/kernels.h"
#include "lockstep/testing/fake_gpu/meeting.h"
#include "lockstep/testing/fake_gpu/memory.h"
#include "lockstep/testing/fake_gpu/state.h"
#include "lockstep/testing/fake_gpu/stream.h"

namespace lockstep {
namespace {

using fake_gpu::Meetings;

class FakeCall final : public DeviceCall {
 public:
  FakeCall(std::vector<Tensor> tensors, c10::Device device)
      : tensors_(std::move(tensors)), device_(device), done_(device.type()) {}

  void order_current_stream() override {
    done_.block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    tensors_.clear();
  }
  bool passed() const override { return done_.query(); }
  std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    failure_ = why;
  }
  void record_end(const c10::Stream& stream) { done_.record(stream); }

 private:
  std::vector<Tensor> tensors_;
  const c10::Device device_;
  c10::Event done_;
  mutable std::mutex mutex_;
  std::string failure_;
};

class FakeGroup final : public DeviceGroup {
 public:
  explicit FakeGroup(const NcclOptions& options)
      : meetings_(std::make_shared<Meetings>(*static_cast<c10d::Store*>(options.store), options.rank, options.size)),
        rank_(options.rank),
        first_device_(options.device) {}

  std::shared_ptr<DeviceCall> all_gather(const Tensor& out, const Tensor& in) override {
    const size_t bytes = in.nbytes();
    auto* const to = static_cast<char*>(fake_gpu::real(out.const_data_ptr()));
    return queued({out, in}, in, [=](const std::vector<const void*>& all) {
      for (size_t r = 0; r < all.size(); ++r) std::memcpy(to + r * bytes, all[r], bytes);
    });
  }
  std::shared_ptr<DeviceCall> all_to_all(const Tensor& out, const Tensor& in) override {
    auto* const to = static_cast<char*>(fake_gpu::real(out.const_data_ptr()));
    return queued({out, in}, in,
                  [=, whole = in.nbytes(), rank = static_cast<size_t>(rank_)](const std::vector<const void*>& all) {
                    const size_t bytes = whole / all.size();
                    for (size_t r = 0; r < all.size(); ++r) {
                      std::memcpy(to + r * bytes, static_cast<const char*>(all[r]) + rank * bytes, bytes);
                    }
                  });
  }
  std::shared_ptr<DeviceCall> broadcast(const Tensor& value, int root) override {
    void* const to = fake_gpu::real(value.const_data_ptr());
    return queued({value}, value, [=, bytes = value.nbytes()](const std::vector<const void*>& all) {
      std::memcpy(to, all.at(static_cast<size_t>(root)), bytes);
    });
  }
  std::string name() const override { return "nccl"; }  // which it stands for: plans and checks ask
  void abort() override { meetings_->abort(); }
  void leave() override {}

 private:
  /// On the device's last stream, behind what its current one holds.
  std::shared_ptr<DeviceCall> queued(std::vector<Tensor> tensors, const Tensor& mine, Meetings::Read read) {
    const c10::Device device = mine.device();
    const c10::impl::VirtualGuardImpl guard(device.type());
    const c10::Stream own(c10::Stream::UNSAFE, device, fake_gpu::kStreams - 1);
    c10::Event ready(device.type());
    ready.record(guard.getStream(device));
    ready.block(own);
    auto call = std::make_shared<FakeCall>(std::move(tensors), device);
    fake_gpu::stream_of(device.index(), own.id())
        .push([call, meetings = meetings_, of_rank = device.index() - first_device_, read = std::move(read),
               bytes = mine.nbytes(), from = fake_gpu::real(mine.const_data_ptr())] {
          try {
            meetings->meet(of_rank, from, bytes, read);
          } catch (const std::exception& e) {
            call->fail(e.what());
          }
        });
    call->record_end(own);
    return call;
  }

  const std::shared_ptr<Meetings> meetings_;
  const int rank_, first_device_;
};

}  // namespace

std::unique_ptr<DeviceGroup> make_fake_group(const NcclOptions& options) {
  return std::make_unique<FakeGroup>(options);
}

const CudaApi& fake_cuda_api() {
  static const CudaApi api{
      .device_count = [] { return fake_gpu::state().devices.load(); },
      .versions = [] { return std::string("CUDA 0.0, driver 0.0, NCCL 0.0.0 (fake)"); },
      .set_memory_fraction = [](int device, double fraction) { fake_gpu::limit_memory(device, fraction); },
      .follow_memory = [](auto* gave, auto* took) { fake_gpu::follow_memory(gave, took); },
      .pin = [](void* begin, size_t bytes) { return fake_gpu::pin(begin, bytes); },
      .unpin = [](void* begin) { fake_gpu::unpin(begin); },
      .kernel_launcher = [] { return &fake_gpu::kernel_launcher(); },
      .make_nccl_group = [](const NcclOptions& options) { return make_fake_group(options).release(); },
  };
  return api;
}

}  // namespace lockstep
