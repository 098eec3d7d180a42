// Flat tensors of one device's counted memory: parameters, what is gathered, gradients, optimizer state. A buffer may
// lose its memory and get it again while views of it live on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

class BufferPool {
 public:
  explicit BufferPool(std::shared_ptr<DeviceMemory> memory) : memory_(std::move(memory)) {}

  /// A flat tensor of `numel` elements; contents undefined.
  Tensor take(int64_t numel, Dtype dtype, MemoryUse use) const;
  Tensor take_zeros(int64_t numel, Dtype dtype, MemoryUse use) const;

  /// A flat tensor over bytes that stand elsewhere (null of a rehearsed one), of which the first `counted` elements'
  /// number is counted here. `owner` holds them.
  Tensor over(void* bytes, std::shared_ptr<const void> owner, int64_t numel, Dtype dtype, int64_t counted,
              MemoryUse use) const;

  /// A flat tensor whose storage is empty until refill().
  Tensor hollow(int64_t numel, Dtype dtype) const;
  /// Gives a hollow or dropped tensor memory again: views and saved tensors of it become valid again, with undefined
  /// contents.
  void refill(const Tensor& tensor, MemoryUse use) const;
  /// Takes the memory away from the tensor's storage and all its views.
  static void drop(const Tensor& tensor);

  const std::shared_ptr<DeviceMemory>& memory() const { return memory_; }
  const std::string& device() const { return memory_->torch_device(); }

 private:
  std::shared_ptr<DeviceMemory> memory_;
};

}  // namespace lockstep
