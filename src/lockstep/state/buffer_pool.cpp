#include "lockstep/state/buffer_pool.h"

#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>

#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {

Tensor BufferPool::take(int64_t numel, Dtype dtype, MemoryUse use) const {
  Tensor tensor = hollow(numel, dtype);
  refill(tensor, use);
  return tensor;
}

Tensor BufferPool::take_zeros(int64_t numel, Dtype dtype, MemoryUse use) const {
  return take(numel, dtype, use).zero_();
}

Tensor BufferPool::over(void* bytes, std::shared_ptr<const void> owner, int64_t numel, Dtype dtype, int64_t counted,
                        MemoryUse use) const {
  Tensor tensor = hollow(numel, dtype);
  const UsedFor what(use);
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      memory_->borrow(bytes, std::move(owner), static_cast<size_t>(counted * dtype_bytes(dtype))));
  return tensor;
}

Tensor BufferPool::hollow(int64_t numel, Dtype dtype) const {
  const c10::Device device(memory_->torch_device());
  const auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(scalar_type_of(dtype))).device(device);
  Tensor tensor = at::empty({0}, options);
  const auto bytes = static_cast<size_t>(numel * dtype_bytes(dtype));
  // Of fixed size, except where there are no bytes: LibTorch wants those resizable, which takes an allocator.
  auto* const allocator = memory_->rehearsed() ? c10::GetAllocator(c10::DeviceType::Meta) : nullptr;
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, device), allocator,
                       memory_->rehearsed());
  tensor.set_(storage, 0, {numel}, {1});
  return tensor;
}

void BufferPool::refill(const Tensor& tensor, MemoryUse use) const {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  const OnDevice scope(memory_);
  const UsedFor what(use);
  c10::OptionalDeviceGuard gpu;
  if (is_gpu(storage->device())) gpu.reset_device(storage->device());
  storage->set_data_ptr_noswap(c10::GetAllocator(storage->device_type())->allocate(storage->nbytes()));
}

void BufferPool::drop(const Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, storage->device()));
}

}  // namespace lockstep
