#include "lockstep/testing/fake_gpu/fake_gpu.h"

#include <array>
#include <chrono>
#include <memory>
#include <new>

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/testing/fake_gpu/kernels.h"
#include "lockstep/testing/fake_gpu/memory.h"
#include "lockstep/testing/fake_gpu/ops.h"
#include "lockstep/testing/fake_gpu/state.h"
#include "lockstep/testing/fake_gpu/stream.h"

namespace lockstep {
namespace fake_gpu {

State& state() {
  static State one;
  return one;
}

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
/// Where a thread stands: every thread begins on device 0 and on the default streams.
struct Standing {
  c10::DeviceIndex device = 0;
  std::array<int64_t, State::kMostDevices> stream{};
};
Standing& standing() {
  thread_local Standing here;
  return here;
}

/// What LibTorch's void* of an event points to.
struct RecordedEvent {
  std::shared_ptr<Event> event = std::make_shared<Event>();
};
RecordedEvent& recorded(void* event) { return *static_cast<RecordedEvent*>(event); }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, standing().device}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() >= 0 && device.index() < state().devices, "fake GPU: invalid device ordinal ",
                static_cast<int>(device.index()));
    standing().device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { standing().device = device.index(); }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, at(device), standing().stream.at(static_cast<size_t>(at(device).index())));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, at(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return next(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return next(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    standing().stream.at(static_cast<size_t>(stream.device_index())) = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(state().devices); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    check_unbroken();
    if (*event == nullptr) *event = new RecordedEvent;
    const auto shared = recorded(*event).event;
    const uint64_t moment = shared->begin();
    stream_of(stream).push([shared, moment] { shared->pass(moment); });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const auto shared = recorded(event).event;
    stream_of(stream).push([shared, moment = shared->newest()] { shared->wait_for(moment); });
  }
  bool queryEvent(void* event) const override {
    check_unbroken();
    start(standing().device);
    return event == nullptr || recorded(event).event->over();
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    const auto between = recorded(to).event->passed_at() - recorded(from).event->passed_at();
    return std::chrono::duration<double, std::milli>(between).count();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<RecordedEvent*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override { return stream_of(stream).idle(); }
  void synchronizeStream(const c10::Stream& stream) const override {
    count_host_wait();
    stream_of(stream).synchronize();
  }
  void synchronizeEvent(void* event) const override {
    count_host_wait();
    check_unbroken();
    if (event != nullptr) recorded(event).event->wait_for(recorded(event).event->newest());
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    count_host_wait();
    synchronize_device(device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    allocator().recordStream(data, stream);
  }

 private:
  c10::Device at(c10::Device device) const { return device.has_index() ? device : getDevice(); }
  static Stream& stream_of(const c10::Stream& stream) {
    return fake_gpu::stream_of(stream.device_index(), stream.id());
  }
  c10::Stream next(c10::Device device) const {
    static std::atomic<int64_t> given{0};
    return c10::Stream(c10::Stream::UNSAFE, at(device), 1 + given++ % (kStreams - 1));
  }
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override { state().initialized = true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return state().devices > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(state().devices); }
  void setCurrentDevice(c10::DeviceIndex device) const override { Guard().setDevice({kType, device}); }
  c10::DeviceIndex getCurrentDevice() const override { return standing().device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return Guard().exchangeDevice({kType, device}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
};

}  // namespace
}  // namespace fake_gpu

void FakeGpu::install(int count, int64_t bytes) {
  check(count >= 1 && count <= fake_gpu::State::kMostDevices, "fake GPUs: 1 to 8");
  static const int installed = [&] {
    c10::register_privateuse1_backend("fakegpu");
    fake_gpu::state().devices = count;
    fake_gpu::make_memory(count, bytes);
    fake_gpu::make_streams(count);
    static const c10::impl::DeviceGuardImplRegistrar guard(fake_gpu::kType, new fake_gpu::Guard);
    at::RegisterPrivateUse1HooksInterface(new fake_gpu::Hooks);
    fake_gpu::register_ops();
    gpu::use_launcher(&fake_gpu::kernel_launcher());
    return count;
  }();
  check(installed == count, "fake GPUs: the process has another number of them already");
}

c10::Device FakeGpu::device(int index) { return {fake_gpu::kType, static_cast<c10::DeviceIndex>(index)}; }
std::string FakeGpu::name(int index) { return fmt::format("fakegpu:{}", index); }

FakeGpuCounts FakeGpu::counts() {
  const auto& counts = *fake_gpu::state().counts;
  return {
      .launches = counts.launches, .host_waits = counts.host_waits, .system_allocations = counts.system_allocations};
}

void FakeGpu::count_in(const std::string& path) {
  using Counts = fake_gpu::State::Counts;
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  check(file >= 0 && ::ftruncate(file, sizeof(Counts)) == 0, "fake GPUs: cannot count in " + path);
  void* const there = ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  check(there != MAP_FAILED, "fake GPUs: cannot count in " + path);
  ::close(file);
  fake_gpu::state().counts = new (there) Counts;  // as long as the process
}

void FakeGpu::break_with(const std::string& words) { fake_gpu::state().broken = new std::string(words); }

FakeGpu::Hold::Hold(Which which) : which_(which) { ++fake_gpu::state().holds_of(which == Which::kDefault); }
FakeGpu::Hold::~Hold() { --fake_gpu::state().holds_of(which_ == Which::kDefault); }

void FakeGpu::forget_started() {
  for (auto& started : fake_gpu::state().started) started = false;
}
bool FakeGpu::started(int index) { return fake_gpu::state().started.at(static_cast<size_t>(index)); }

void FakeGpu::delay(std::chrono::microseconds default_stream, std::chrono::microseconds other_streams) {
  fake_gpu::state().default_delay_us = default_stream.count();
  fake_gpu::state().other_delay_us = other_streams.count();
}

}  // namespace lockstep
