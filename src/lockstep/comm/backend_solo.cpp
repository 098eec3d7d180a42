#include "lockstep/comm/backend_solo.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace lockstep {
namespace {

class DoneWork final : public Work {
 public:
  void finish(Clock::duration) override {}
};

class SoloBackend final : public Backend {
 public:
  explicit SoloBackend(std::string device) : device_(std::move(device)) {}

  std::unique_ptr<Work> all_gather(const Tensor& full, const Tensor& shard) override {
    if (full.data_ptr() != shard.data_ptr()) full.copy_(shard);
    return std::make_unique<DoneWork>();
  }
  std::unique_ptr<Work> reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate) override {
    if (accumulate) {
      sum.add_(staged);
    } else {
      sum.copy_(staged);
    }
    return std::make_unique<DoneWork>();
  }
  std::unique_ptr<Work> all_reduce(const Tensor&, bool) override { return std::make_unique<DoneWork>(); }
  std::unique_ptr<Work> broadcast(const Tensor&, int) override { return std::make_unique<DoneWork>(); }
  Tensor staging(int64_t numel, int scalar_type) override {
    return at::empty({numel},
                     at::TensorOptions().dtype(static_cast<at::ScalarType>(scalar_type)).device(c10::Device(device_)));
  }
  int64_t max_staging_bytes() const override { return int64_t{1} << 30; }
  std::string name() const override { return "solo"; }
  void abort() override {}

 private:
  std::string device_;
};

}  // namespace

std::unique_ptr<Backend> make_solo_backend(const std::string& device) { return std::make_unique<SoloBackend>(device); }

}  // namespace lockstep
