#include "lockstep/testing/fake_gpu/fake_group.h"

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/testing/fake_gpu/fake_gpu.h"
#include "lockstep/testing/fake_gpu/memory.h"
#include "lockstep/testing/fake_gpu/state.h"
#include "lockstep/testing/fake_gpu/stream.h"

namespace lockstep {
namespace {

/// Where the ranks of a group meet: a call is over on a rank when all have read what they need of each other.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size), given_(static_cast<size_t>(size)) {}

  /// Every rank gives an address; `read` is called when all have, and all return when every rank has read.
  void meet(int rank, const void* mine, const std::function<void(const std::vector<const void*>&)>& read) {
    given_.at(static_cast<size_t>(rank)) = mine;
    wait_for_all();
    read(given_);
    wait_for_all();
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changes_.notify_all();
  }

 private:
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    // Not counted: a rank whose calls break one after another would stand in for one that has given nothing.
    if (aborted_) throw std::runtime_error("the fake group was aborted");
    const int64_t round = round_;
    if (++here_ == size_) {
      here_ = 0;
      ++round_;
      changes_.notify_all();
    }
    changes_.wait(lock, [&] { return aborted_ || round_ != round; });
    if (round_ == round) throw std::runtime_error("the fake group was aborted");
  }

  const int size_;
  std::vector<const void*> given_;
  std::mutex mutex_;
  std::condition_variable changes_;
  int here_ = 0;
  int64_t round_ = 0;
  bool aborted_ = false;
};

/// One for each device of a rank, as NCCL has a communicator for each: their calls are not ordered among each other.
class Meetings {
 public:
  explicit Meetings(int size) : size_(size) {}
  std::shared_ptr<Meeting> of(int device_of_rank) {
    const std::lock_guard lock(mutex_);
    auto& meeting = by_device_[device_of_rank];
    if (!meeting) meeting = std::make_shared<Meeting>(size_);
    if (aborted_) meeting->abort();
    return meeting;
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    for (const auto& [device, meeting] : by_device_) meeting->abort();
  }

 private:
  const int size_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Meeting>> by_device_;
  bool aborted_ = false;
};

std::shared_ptr<Meetings> meetings_of(const NcclOptions& options) {
  static std::mutex mutex;
  static auto* const all = new std::map<std::string, std::weak_ptr<Meetings>>;
  static int64_t made = 0;
  auto& store = *static_cast<c10d::Store*>(options.store);
  if (options.rank == 0) {
    auto meeting = std::make_shared<Meetings>(options.size);
    std::string id;
    {
      const std::lock_guard lock(mutex);
      id = std::to_string(++made);
      (*all)[id] = meeting;
    }
    store.set("meeting", std::vector<uint8_t>(id.begin(), id.end()));
    for (int r = 1; r < options.size; ++r)
      store.wait({"met/" + std::to_string(r)});  // else it may be gone before they come
    return meeting;
  }
  const auto id = store.get("meeting");
  std::shared_ptr<Meetings> meeting;
  {
    const std::lock_guard lock(mutex);
    meeting = all->at(std::string(id.begin(), id.end())).lock();
  }
  store.set("met/" + std::to_string(options.rank), std::vector<uint8_t>{1});
  return meeting;
}

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
  FakeGroup(std::shared_ptr<Meetings> meetings, const NcclOptions& options)
      : meetings_(std::move(meetings)), rank_(options.rank), first_device_(options.device) {}

  std::shared_ptr<DeviceCall> all_gather(const Tensor& out, const Tensor& in) override {
    const size_t bytes = in.nbytes();
    auto* const to = static_cast<char*>(fake_gpu::real(out.const_data_ptr()));
    return queued({out, in}, fake_gpu::real(in.const_data_ptr()), [=](const std::vector<const void*>& all) {
      for (size_t r = 0; r < all.size(); ++r) std::memmove(to + r * bytes, all[r], bytes);
    });
  }
  std::shared_ptr<DeviceCall> all_to_all(const Tensor& out, const Tensor& in) override {
    auto* const to = static_cast<char*>(fake_gpu::real(out.const_data_ptr()));
    return queued({out, in}, fake_gpu::real(in.const_data_ptr()),
                  [=, whole = in.nbytes(), rank = static_cast<size_t>(rank_)](const std::vector<const void*>& all) {
                    const size_t bytes = whole / all.size();
                    for (size_t r = 0; r < all.size(); ++r) {
                      std::memcpy(to + r * bytes, static_cast<const char*>(all[r]) + rank * bytes, bytes);
                    }
                  });
  }
  std::shared_ptr<DeviceCall> broadcast(const Tensor& value, int root) override {
    void* const to = fake_gpu::real(value.const_data_ptr());
    return queued({value}, to, [=, bytes = value.nbytes()](const std::vector<const void*>& all) {
      const void* const from = all.at(static_cast<size_t>(root));
      if (from != to) std::memcpy(to, from, bytes);
    });
  }
  std::string name() const override { return "fake"; }
  void abort() override { meetings_->abort(); }
  void leave() override {}

 private:
  /// On the device's last stream, behind what its current one holds.
  std::shared_ptr<DeviceCall> queued(std::vector<Tensor> tensors, const void* mine,
                                     std::function<void(const std::vector<const void*>&)> read) {
    const c10::Device device = tensors.front().device();
    const c10::impl::VirtualGuardImpl guard(device.type());
    const c10::Stream own(c10::Stream::UNSAFE, device, fake_gpu::kStreams - 1);
    c10::Event ready(device.type());
    ready.record(guard.getStream(device));
    ready.block(own);
    auto call = std::make_shared<FakeCall>(std::move(tensors), device);
    fake_gpu::stream_of(device.index(), own.id())
        .push([=, meeting = meetings_->of(device.index() - first_device_), rank = rank_, read = std::move(read)] {
          try {
            meeting->meet(rank, mine, read);
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
  return std::make_unique<FakeGroup>(meetings_of(options), options);
}

const CudaApi& fake_cuda_api() {
  static const CudaApi api{
      .device_count = [] { return fake_gpu::state().devices.load(); },
      .versions = [] { return std::string("CUDA 0.0, driver 0.0, NCCL 0.0.0 (fake)"); },
      .set_memory_fraction = [](int device, double fraction) { fake_gpu::limit_memory(device, fraction); },
      .make_nccl_group = [](const NcclOptions& options) { return make_fake_group(options).release(); },
  };
  return api;
}

}  // namespace lockstep
