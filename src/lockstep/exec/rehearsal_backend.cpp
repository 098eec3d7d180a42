#include "lockstep/exec/rehearsal_backend.h"

#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "lockstep/comm/backend_gloo.h"
#include "lockstep/comm/backend_shm.h"
#include "lockstep/comm/device_group.h"
#include "lockstep/exec/touched_rings.h"
#include "lockstep/state/buffer_pool.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// Holds what the transport needs until the call is finished.
class HeldWork final : public Work {
 public:
  explicit HeldWork(Tensor held = {}, Tensor summed_like = {})
      : held_(std::move(held)), summed_like_(std::move(summed_like)) {}
  void finish(Clock::duration) override {
    if (summed_like_.defined()) (void)at::empty_like(summed_like_);
    held_ = summed_like_ = Tensor();
  }

 private:
  Tensor held_, summed_like_;
};

class RehearsedTransport final : public RehearsalBackend {
 public:
  RehearsedTransport(int size, std::string transport) : size_(size), transport_(std::move(transport)) {}

  std::unique_ptr<Work> all_gather(const Tensor&, const Tensor& shard) override { return shared(shard); }
  /// All but shared memory receive every rank's part before they add them; devices add them beside what was there.
  std::unique_ptr<Work> reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate) override {
    rings_.reduces(static_cast<int64_t>(staged.nbytes()));
    if (transport_ == "shm") return std::make_unique<HeldWork>();
    return std::make_unique<HeldWork>(at::empty_like(staged), accumulate && transport_ == "nccl" ? sum : Tensor());
  }
  std::unique_ptr<Work> all_reduce(const Tensor& value, bool) override { return shared(value); }
  std::unique_ptr<Work> broadcast(const Tensor& value, int) override { return shared(value); }

  /// Shared memory stages in its own segment, which no device counts.
  Tensor staging(int64_t numel, int scalar_type) override {
    const auto options =
        at::TensorOptions().dtype(static_cast<at::ScalarType>(scalar_type)).device(c10::DeviceType::Meta);
    if (transport_ != "shm") return at::empty({numel}, options);
    const Tensor like = at::empty({0}, options);
    return BufferPool(DeviceMemory::current()).hollow(numel, dtype_of(like));
  }
  int64_t max_staging_bytes() const override {
    if (transport_ == "shm") return kDataSlotBytes;
    return transport_ == "nccl" ? kDeviceStagingBytes : kGlooStagingBytes;
  }
  void phase_ends() override { rings_.phase_ends(); }
  int64_t bytes_beside() const override { return transport_ != "shm" || size_ == 1 ? 0 : rings_.bytes(); }
  std::string name() const override { return "rehearsal of " + transport_ + " over " + std::to_string(size_); }
  void abort() override {}

 private:
  std::unique_ptr<Work> shared(const Tensor& of_rank) {
    rings_.shares(static_cast<int64_t>(of_rank.nbytes()));
    return std::make_unique<HeldWork>();
  }

  int size_;
  std::string transport_;
  TouchedRings rings_{size_};
};

}  // namespace

std::unique_ptr<RehearsalBackend> make_rehearsal_backend(int size, const std::string& transport) {
  return std::make_unique<RehearsedTransport>(size, transport);
}

}  // namespace lockstep
