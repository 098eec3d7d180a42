#include "lockstep/tensor/gpus.h"

#include <map>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

namespace lockstep {
namespace {

/// The device with its number, ready to be asked: LibTorch's allocator of CUDA knows no device before it is started.
c10::Device started(const std::string& name) {
  const c10::Device device(name);
  at::globalContext().lazyInitDevice(device.type());
  return {device.type(), static_cast<c10::DeviceIndex>(gpu_of(name).value())};
}

}  // namespace

std::optional<int> gpu_of(const std::string& torch_device) {
  const size_t colon = torch_device.find(':');
  const std::string type = torch_device.substr(0, colon);
  const bool gpu =
      type == "cuda" || (c10::is_privateuse1_backend_registered() && type == c10::get_privateuse1_backend());
  if (!gpu) return std::nullopt;
  return colon == std::string::npos ? 0 : std::stoi(torch_device.substr(colon + 1));
}

bool is_gpu(const c10::Device& device) { return device.is_cuda() || device.is_privateuseone(); }

Tensor sent_to(const Tensor& tensor, const c10::Device& device) {
  if (!is_gpu(device)) return tensor.to(device);
  // A GPU fetches from pinned memory by itself; with any other the host stands beside until it is done.
  const bool pageable = tensor.is_cpu() && !tensor.is_pinned();
  return (pageable ? tensor.pin_memory() : tensor).to(device, /*non_blocking=*/true);
}

GpuMemory gpu_memory(const std::string& name) {
  const c10::Device device = started(name);
  auto& allocator = *c10::getDeviceAllocator(device.type());
  const auto [free_bytes, total_bytes] = allocator.getMemoryInfo(device.index());
  const auto stats = allocator.getDeviceStats(device.index());
  const auto &allocated = stats.allocated_bytes[0], &reserved = stats.reserved_bytes[0];  // 0: over all pools
  return {.free_bytes = static_cast<int64_t>(free_bytes),
          .total_bytes = static_cast<int64_t>(total_bytes),
          .allocated_bytes = allocated.current,
          .reserved_bytes = reserved.current,
          .peak_allocated_bytes = allocated.peak,
          .peak_reserved_bytes = reserved.peak};
}

void reset_gpu_peak(const std::string& name) {
  const c10::Device device = started(name);
  c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

void empty_gpu_caches(const std::string& name) { c10::getDeviceAllocator(started(name).type())->emptyCache(); }

void take_memory_of_products(const std::string& name) {
  const c10::DeviceGuard guard(started(name));
  const at::AutoGradMode records(true);
  constexpr int64_t kSize = 16;  // a product with a bias has memory of its own
  const auto like = at::device(guard.current_device()).dtype(at::kFloat);
  const Tensor w = at::zeros({kSize, kSize}, like).requires_grad_(), b = at::zeros({kSize}, like).requires_grad_();
  const Tensor x = at::zeros({kSize, kSize}, like).requires_grad_();
  (void)torch::autograd::grad({at::linear(x, w, b).mm(w).sum()}, {x, w, b});
}

void synchronize_gpu(const std::string& name) {
  const c10::Device device = started(name);
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

void stand_on_gpu(const std::string& name) {
  const c10::Device device = started(name);
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

struct GpuMoment::Impl {
  c10::Device device;
  c10::Event event;
};

GpuMoment GpuMoment::now(const std::string& name) { return now(started(name)); }

GpuMoment GpuMoment::now(const c10::Device& device) {
  GpuMoment moment;
  moment.impl_ = std::make_shared<Impl>(Impl{device, c10::Event(device.type())});
  moment.impl_->event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return moment;
}

bool GpuMoment::over() const { return !impl_ || impl_->event.query(); }

void GpuMoment::order_current_stream() const {
  if (!impl_) return;
  const c10::Device device = impl_->device;
  impl_->event.block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

namespace {

/// One for each GPU, so that copies do not overtake each other.
c10::Stream copy_stream(const c10::Device& device) {
  static std::mutex mutex;
  static auto* const all = new std::map<std::string, c10::Stream>;
  const std::lock_guard lock(mutex);
  const auto found = all->find(device.str());
  if (found != all->end()) return found->second;
  const c10::Stream made = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return all->emplace(device.str(), made).first->second;
}

}  // namespace

struct OnCopyStream::Impl {
  c10::DeviceGuard device;
  c10::StreamGuard stream;
};

OnCopyStream::OnCopyStream(const std::string& name) {
  const c10::Device device = started(name);
  impl_.reset(new Impl{c10::DeviceGuard(device), c10::StreamGuard(copy_stream(device))});
}
OnCopyStream::~OnCopyStream() = default;

}  // namespace lockstep
