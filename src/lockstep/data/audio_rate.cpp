#include "lockstep/data/audio_rate.h"

#include <array>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>
#include <soxr.h>

#include "lockstep/base/error.h"

namespace lockstep {

struct AudioRate::Impl {
  double ratio;  // as librosa has it: ceil() of a product with it is a sample more now and then
  int64_t taken = 0;
  soxr_t soxr = nullptr;
  std::array<float, 1 << 12> ready{};  // small enough to stay near: `out` is touched once

  explicit Impl(double value) : ratio(value) {}
  ~Impl() {
    if (soxr != nullptr) soxr_delete(soxr);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Samples, or nothing to say that there are no more.
  void process(std::span<const float> samples, std::vector<float>& out) {
    const bool last = samples.empty();
    for (;;) {
      size_t used = 0, made = 0;
      const soxr_error_t error =
          soxr_process(soxr, last ? nullptr : samples.data(), samples.size(), &used, ready.data(), ready.size(), &made);
      check(error == nullptr, "soxr takes what it is given");
      out.insert(out.end(), ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(made));
      samples = samples.subspan(last ? 0 : used);
      if (made < ready.size() && (last || samples.empty())) return;
    }
  }
};

AudioRate::AudioRate(int64_t from, int64_t to)
    : impl_(std::make_unique<Impl>(static_cast<double>(to) / static_cast<double>(from))) {
  if (from == to) return;
  const soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
  soxr_error_t error = nullptr;
  impl_->soxr = soxr_create(static_cast<double>(from), static_cast<double>(to), 1, &error, &io, &quality, &runtime);
  check(error == nullptr && impl_->soxr != nullptr, fmt::format("soxr goes from {} to {} samples a second", from, to));
}

AudioRate::~AudioRate() = default;

void AudioRate::push(std::span<const float> samples, std::vector<float>& out) {
  impl_->taken += static_cast<int64_t>(samples.size());
  if (impl_->soxr == nullptr) {
    out.insert(out.end(), samples.begin(), samples.end());
  } else if (!samples.empty()) {
    impl_->process(samples, out);
  }
}

void AudioRate::finish(std::vector<float>& out) {
  if (impl_->soxr == nullptr) return;
  impl_->process({}, out);
  out.resize(static_cast<size_t>(std::ceil(static_cast<double>(impl_->taken) * impl_->ratio)));
}

}  // namespace lockstep
