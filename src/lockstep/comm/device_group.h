// The seam to transports between devices: NCCL (liblockstep_cuda.so), and the fake GPUs' own in tests. A call returns when
// it is queued: it begins after what the current stream of its tensors' device holds, and its end is a moment of the device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/comm/backend.h"
#include "lockstep/tensor/fwd.h"

namespace lockstep {

/// A call that was queued. Keeps its tensors until the current stream is ordered behind it.
class DeviceCall {
 public:
  virtual ~DeviceCall() = default;
  /// What this thread queues from now on begins after it. The host does not wait.
  virtual void order_current_stream() = 0;
  /// Whether the device is past it, and all is well; from any thread.
  virtual bool passed() const = 0;
  /// Why it broke; empty while it has not, as far as passed() has found.
  virtual std::string failure() const = 0;
};

/// The ranks' devices as a group. Every rank makes the same calls in the same order with the same sizes. All tensors of a
/// call stand on one device, are contiguous, and of one dtype.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  virtual std::shared_ptr<DeviceCall> all_gather(const Tensor& out, const Tensor& in) = 0;  // out [size * n], in [n]
  virtual std::shared_ptr<DeviceCall> all_to_all(const Tensor& out, const Tensor& in) = 0;  // both [size * n]
  virtual std::shared_ptr<DeviceCall> broadcast(const Tensor& value, int root) = 0;
  virtual std::string name() const = 0;
  /// Every call under way and later breaks, on this rank; from any thread. Does not wait for other ranks.
  virtual void abort() = 0;
  /// Leaves in good order: all calls are over.
  virtual void leave() = 0;
};

/// The most that one reduction between devices stages at once: larger pieces are no faster and cost the GPU's memory.
inline constexpr int64_t kDeviceStagingBytes = int64_t{64} << 20;

struct DeviceBackendOptions {
  std::string device;  // "cuda:1": where tensors of the host travel from
  int size = 1;
  Clock::duration patience{};  // a call that the device is not past after so long is aborted
};

/// Collectives as Backend has them, of device calls.
std::unique_ptr<Backend> make_device_backend(std::unique_ptr<DeviceGroup> group, const DeviceBackendOptions& options);

}  // namespace lockstep
