#include "lockstep/tensor/kernels.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "lockstep/tensor/kernels_tables.h"
#include "lockstep/tensor/mel_spectra.h"

namespace lockstep::kernels {
namespace {

enum class Level { kV2, kV3, kV4 };

/// What LibTorch's own kernels run with: the best that the processor has, or less where ATEN_CPU_CAPABILITY says so.
Level level_of_torch() {
  const std::string name = at::get_cpu_capability();
  return name == "AVX512" ? Level::kV4 : name == "AVX2" ? Level::kV3 : Level::kV2;
}

Level level_of_processor() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")) {
    return Level::kV4;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    return Level::kV3;
  }
  return Level::kV2;
}

Level level_of_process() {
  static const Level level = std::min(level_of_processor(), level_of_torch());
  return level;
}

template <typename T>
const Table<T>& pick(const Table<T>& v2, const Table<T>& v3, const Table<T>& v4) {
  const Level level = level_of_process();
  return level == Level::kV4 ? v4 : level == Level::kV3 ? v3 : v2;
}

}  // namespace

template <>
const Table<float>& table<float>() {
  return pick(table_v2_f32(), table_v3_f32(), table_v4_f32());
}

template <>
const Table<Bf16>& table<Bf16>() {
  return pick(table_v2_bf16(), table_v3_bf16(), table_v4_bf16());
}

template <>
const Table<F16>& table<F16>() {
  return pick(table_v2_f16(), table_v3_f16(), table_v4_f16());
}

const PairTable* pair_table() {
  return level_of_process() == Level::kV4 && __builtin_cpu_supports("avx512bf16") ? &pair_table_v4() : nullptr;
}

MelKernel mel_kernel() {
  const Level level = level_of_process();
  return level == Level::kV4 ? mel_frames_v4 : level == Level::kV3 ? mel_frames_v3 : mel_frames_v2;
}

std::string_view instruction_set() {
  const Level level = level_of_process();
  return level == Level::kV4 ? "AVX-512" : level == Level::kV3 ? "AVX2" : "SSE4.2";
}

void parallel_rows(int64_t n, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& fn) {
#if defined(__SANITIZE_THREAD__)  // which sees of OpenMP's threads neither that they begin nor that they end together
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), (n + grain - 1) / std::max<int64_t>(1, grain));
  const int64_t each = threads == 0 ? 0 : (n + threads - 1) / threads;
  std::vector<std::jthread> others;
  for (int64_t i = 0; i < threads; ++i) {
    others.emplace_back([&, i] {
      const at::internal::ThreadIdGuard number(static_cast<int>(i));
      if (i * each < n) fn(i * each, std::min(n, (i + 1) * each));
    });
  }
#else
  at::parallel_for(0, n, grain, fn);
#endif
}

}  // namespace lockstep::kernels
