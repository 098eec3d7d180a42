// The kernel of MelSpectra: several frames at a time, one a lane, so that the transform is the same for every lane and nothing
// is shuffled. Included only by the mel_spectra_v*.cpp files, each compiled for another instruction set.
//
// In double up to the logarithm: where a bin is eight decades below its frame's loudest, float32 would leave few digits of it.
#pragma once

#include <cstdint>

#include "lockstep/tensor/mel_spectra.h"

namespace lockstep::kernels {
namespace {

template <int64_t kLanes>
struct MelTypes {
  typedef double D __attribute__((vector_size(8 * kLanes)));
  typedef float F __attribute__((vector_size(4 * kLanes)));
  typedef int32_t I __attribute__((vector_size(4 * kLanes)));
};

/// kLanes: as many doubles as a register holds; more would be spilled by every butterfly.
template <int64_t kLanes>
struct MelLanes {
  using D = typename MelTypes<kLanes>::D;
  using F = typename MelTypes<kLanes>::F;
  using I = typename MelTypes<kLanes>::I;

  /// A complex number a lane.
  struct C {
    D re, im;

    [[gnu::always_inline]] C operator+(C b) const { return {re + b.re, im + b.im}; }
    [[gnu::always_inline]] C operator-(C b) const { return {re - b.re, im - b.im}; }
    [[gnu::always_inline]] C operator*(double by) const { return {re * by, im * by}; }
    [[gnu::always_inline]] C times_i() const { return {-im, re}; }
    [[gnu::always_inline]] C turned(const double* turn) const {
      return {re * turn[0] - im * turn[1], re * turn[1] + im * turn[0]};
    }
  };
  static constexpr int64_t kWord = 2 * kLanes;  // doubles of a C

  [[gnu::always_inline]] static D load(const double* from) {
    D value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
  }
  [[gnu::always_inline]] static void store(double* to, D value) { __builtin_memcpy(to, &value, sizeof value); }
  [[gnu::always_inline]] static C load_c(const double* from) { return {load(from), load(from + kLanes)}; }
  [[gnu::always_inline]] static void store_c(double* to, C value) {
    store(to, value.re);
    store(to + kLanes, value.im);
  }
  [[gnu::always_inline]] static F pick(I mask, F yes, F no) {
    return reinterpret_cast<F>((reinterpret_cast<I>(yes) & mask) | (reinterpret_cast<I>(no) & ~mask));
  }

  /// X[k] = sum over j of x[j] e^(-2 pi i j k / radix), in place.
  template <int64_t kRadix>
  [[gnu::always_inline]] static void butterfly(C (&x)[kRadix]) {
    if constexpr (kRadix == 2) {
      const C sum = x[0] + x[1], difference = x[0] - x[1];
      x[0] = sum;
      x[1] = difference;
    } else if constexpr (kRadix == 4) {
      const C even = x[0] + x[2], odd = x[1] + x[3], across = x[0] - x[2], turn = (x[1] - x[3]).times_i();
      x[0] = even + odd;
      x[1] = across - turn;
      x[2] = even - odd;
      x[3] = across + turn;
    } else {
      constexpr double kCos1 = 0.30901699437494742410, kCos2 = -0.80901699437494742410;  // of 72 and 144 degrees
      constexpr double kSin1 = 0.95105651629515357212, kSin2 = 0.58778525229247312917;
      const C near = x[1] + x[4], far = x[2] + x[3], near_gap = x[1] - x[4], far_gap = x[2] - x[3];
      const C first = x[0] + near * kCos1 + far * kCos2, second = x[0] + near * kCos2 + far * kCos1;
      const C first_turn = (near_gap * kSin1 + far_gap * kSin2).times_i();
      const C second_turn = (near_gap * kSin2 - far_gap * kSin1).times_i();
      x[0] = x[0] + near + far;
      x[1] = first - first_turn;
      x[2] = second - second_turn;
      x[3] = second + second_turn;
      x[4] = first + first_turn;
    }
  }

  template <int64_t kRadix>
  static void run_stage(const FftStage& stage, const double* turns, const double* from, double* to) {
    for (int64_t p = 0; p < stage.groups; ++p, turns += 2 * (kRadix - 1)) {
      for (int64_t q = 0; q < stage.stride; ++q) {
        C x[kRadix];
        for (int64_t j = 0; j < kRadix; ++j) x[j] = load_c(from + (q + stage.stride * (p + stage.groups * j)) * kWord);
        butterfly(x);
        double* const out = to + (q + stage.stride * kRadix * p) * kWord;
        store_c(out, x[0]);
        for (int64_t k = 1; k < kRadix; ++k) store_c(out + stage.stride * k * kWord, x[k].turned(turns + 2 * (k - 1)));
      }
    }
  }

  /// log10 of positive normal numbers to 1e-6. Source: Cephes logf (polynomial of degree 8 around 1).
  [[gnu::always_inline]] static F log10_of(F x) {
    const I bits = reinterpret_cast<I>(x);
    I exponent = ((bits >> 23) & 255) - 126;
    F m = reinterpret_cast<F>((bits & 0x007FFFFF) | 0x3F000000);  // 0.5 to 1
    const I small = m < 0.707106781186547524F;
    exponent += small;  // minus one where it is
    m = pick(small, m + m, m) - 1.0F;
    const F z = m * m;
    F p = m * 7.0376836292E-2F - 1.1514610310E-1F;
    p = p * m + 1.1676998740E-1F;
    p = p * m - 1.2420140846E-1F;
    p = p * m + 1.4249322787E-1F;
    p = p * m - 1.6668057665E-1F;
    p = p * m + 2.0000714765E-1F;
    p = p * m - 2.4999993993E-1F;
    p = p * m + 3.3333331174E-1F;
    const F natural = m + (p * m * z - z * 0.5F);
    return natural * 0.434294481903251828F + __builtin_convertvector(exponent, F) * 0.301029995663981195F;
  }

  /// Samples 2 j and 2 j + 1 of a frame are one complex number.
  static void gather_frames(const MelTables& tables, const float* samples, int64_t frames, double* to) {
    const double* const window = tables.window.data();
    const float* frame[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane)
      frame[lane] = samples + (lane < frames ? lane : frames - 1) * tables.hop;
    for (int64_t i = 0; i < tables.n_fft; ++i) {
      F here{};
      for (int64_t lane = 0; lane < kLanes; ++lane) here[lane] = frame[lane][i];
      store(to + i * kLanes, __builtin_convertvector(here, D) * window[i]);
    }
  }

  /// The transform of what was folded into `half` complex numbers -> powers [half + 1].
  static void unfold_powers(const MelTables& tables, const double* folded, double* powers) {
    const int64_t half = tables.n_fft / 2;
    for (int64_t k = 0; k <= half; ++k) {
      const C z = load_c(folded + (k % half) * kWord), mirrored = load_c(folded + ((half - k) % half) * kWord);
      const C mirror{mirrored.re, -mirrored.im};
      const C odd = ((z - mirror) * 0.5).turned(tables.unfold.data() + 2 * k);
      const C whole = (z + mirror) * 0.5 - odd.times_i();
      store(powers + k * kLanes, whole.re * whole.re + whole.im * whole.im);
    }
  }

  static float run(const MelTables& tables, const float* samples, int64_t frames, float* out, int64_t stride,
                   double* scratch) {
    double *from = scratch, *to = scratch + tables.n_fft * kLanes, *const powers = to + tables.n_fft * kLanes;
    gather_frames(tables, samples, frames, from);
    for (const FftStage& stage : tables.stages) {
      const double* const turns = tables.turns.data() + stage.turns;
      if (stage.radix == 5) run_stage<5>(stage, turns, from, to);
      if (stage.radix == 4) run_stage<4>(stage, turns, from, to);
      if (stage.radix == 2) run_stage<2>(stage, turns, from, to);
      double* const made = to;
      to = from;
      from = made;
    }
    unfold_powers(tables, from, powers);
    F most = F{} - 1e30F;
    for (const MelBand& band : tables.bands) {
      const double* const weights = tables.weights.data() + band.weights;
      D sum{};
      for (int64_t i = 0; i < band.count; ++i) sum += load(powers + (band.first + i) * kLanes) * weights[i];
      const F power = __builtin_convertvector(sum, F);
      const F value = log10_of(pick(power > tables.floor, power, F{} + tables.floor));
      most = pick(value > most, value, most);
      __builtin_memcpy(out, &value, sizeof value);
      out += stride;
    }
    float largest = most[0];
    for (int64_t lane = 1; lane < kLanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
    return largest;
  }
};

template <int64_t kLanes>
float mel_frames(const MelTables& tables, const float* samples, int64_t frames, float* out, int64_t stride,
                 double* scratch) {
  float largest = -1e30F;
  for (int64_t at = 0; at < kMelFrames; at += kLanes) {
    const int64_t begin = at < frames ? at : frames - 1, here = frames - begin < kLanes ? frames - begin : kLanes;
    const float found = MelLanes<kLanes>::run(tables, samples + begin * tables.hop, here, out + at, stride, scratch);
    largest = found > largest ? found : largest;
  }
  return largest;
}

}  // namespace
}  // namespace lockstep::kernels
