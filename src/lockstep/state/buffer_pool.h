// One counted pool for gathered parameters, staging and gradients: the C library would keep freed blocks and hide what
// ZeRO-3 frees. Freed blocks wait in size classes for the next taker; trim() gives them back to the system.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/tensor/fwd.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

class BufferPool {
 public:
  explicit BufferPool(const std::string& device);
  ~BufferPool();  // blocks still in use stay valid: they return to the system when freed
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// A flat tensor of `numel` elements; contents undefined. Its block returns to the pool when the storage dies or is
  /// dropped.
  Tensor take(int64_t numel, Dtype dtype);

  /// A flat tensor whose storage is empty until refill().
  Tensor hollow(int64_t numel, Dtype dtype) const;
  /// Gives a hollow or dropped tensor memory again: views and saved tensors of it become valid again, with undefined
  /// contents.
  void refill(const Tensor& tensor) const;
  /// Takes the memory away from the tensor's storage and all its views.
  static void drop(const Tensor& tensor);

  int64_t alive_bytes() const;
  int64_t peak_bytes() const;
  void reset_peak();
  void trim();
  const std::string& device() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep
