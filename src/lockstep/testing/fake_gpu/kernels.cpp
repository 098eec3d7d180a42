#include "lockstep/testing/fake_gpu/kernels.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Half.h>

#include "lockstep/base/error.h"
#include "lockstep/testing/fake_gpu/meeting_threads.h"
#include "lockstep/testing/fake_gpu/memory.h"
#include "lockstep/testing/fake_gpu/state.h"
#include "lockstep/testing/fake_gpu/stream.h"

namespace lockstep::fake_gpu {
namespace {

/// Where the thread that is being played stands.
struct Place {
  int64_t block_x = 0, block_y = 0;
  int thread = 0, threads = 1;
};
thread_local Place here;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<ThreadsOfBlock> threads_of_block{ThreadsOfBlock::kOne};

namespace device_code {

int64_t block_x() { return here.block_x; }
int64_t block_y() { return here.block_y; }
int thread() { return here.thread; }
int threads() { return here.threads; }
void all_here() { wait_for_others(); }  // where one thread plays a block it is there
unsigned bits_of(float x) { return std::bit_cast<unsigned>(x); }
float float_of(unsigned bits) { return std::bit_cast<float>(bits); }
uint16_t half_of(float x) { return c10::Half(x).x; }
float float_of_half(uint16_t bits) { return c10::Half(bits, c10::Half::from_bits()); }
template <typename T>
T* memory_at(long long address) {  // NOLINT(google-runtime-int): as a GPU's compiler has it
  return static_cast<T*>(real(reinterpret_cast<void*>(address)));  // NOLINT(performance-no-int-to-ptr)
}

#define LOCKSTEP_KERNEL void
#define LOCKSTEP_KERNEL_OF(threads) void
#define LOCKSTEP_DEVICE inline
#define LOCKSTEP_SHARED static thread_local
#define LOCKSTEP_UNROLL
#include "lockstep/tensor/gpu_kernels.cuh"
// Behind it, with its words.
#include "lockstep/tensor/gpu_decode.cuh"
LOCKSTEP_f32_wide LOCKSTEP_f32 LOCKSTEP_bf16_wide LOCKSTEP_bf16 LOCKSTEP_f16_wide LOCKSTEP_f16

}  // namespace device_code

template <typename T>
T as(const KernelArgument& argument) {
  using Kind = KernelArgument::Kind;
  constexpr Kind kWanted = std::is_pointer_v<T>    ? Kind::kPointer
                           : std::is_integral_v<T> ? Kind::kInteger
                                                   : Kind::kFloat;
  check(argument.kind == kWanted, "a kernel of a GPU is given what it asks for");
  if constexpr (std::is_pointer_v<T>) {
    return static_cast<T>(argument.pointer == nullptr ? nullptr : real(argument.pointer));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(argument.integer);
  } else {
    return argument.number;
  }
}

/// A kernel with its arguments, to be played by every thread.
using Play = std::function<void()>;
using Bind = Play (*)(const std::vector<KernelArgument>&);

template <auto kKernel>
struct Kernel;
template <typename... T, void (*kKernel)(T...)>
struct Kernel<kKernel> {
  static Play bind(const std::vector<KernelArgument>& arguments) {
    check(arguments.size() == sizeof...(T), "a kernel of a GPU is given as many arguments as it has");
    return bound(arguments, std::index_sequence_for<T...>());
  }
  template <size_t... I>
  static Play bound(const std::vector<KernelArgument>& arguments, std::index_sequence<I...>) {
    return [values = std::tuple<T...>(as<T>(arguments[I])...)] { std::apply(kKernel, values); };
  }
};

const std::map<std::string, Bind>& kernels() {
#define LOCKSTEP_ONE(NAME, DTYPE) \
  { #NAME "_" #DTYPE, &Kernel < &device_code::NAME##_##DTYPE> ::bind }
#define LOCKSTEP_DTYPES(NAME)                                                                                     \
  LOCKSTEP_ONE(NAME, f32), LOCKSTEP_ONE(NAME, f32_wide), LOCKSTEP_ONE(NAME, bf16), LOCKSTEP_ONE(NAME, bf16_wide), \
      LOCKSTEP_ONE(NAME, f16), LOCKSTEP_ONE(NAME, f16_wide)
  static const std::map<std::string, Bind> all{
      LOCKSTEP_DTYPES(swiglu),         LOCKSTEP_DTYPES(swiglu_backward), LOCKSTEP_DTYPES(split_heads),
      LOCKSTEP_DTYPES(join_heads),     LOCKSTEP_DTYPES(cross_entropy),   LOCKSTEP_DTYPES(accumulate),
      LOCKSTEP_DTYPES(drop),           LOCKSTEP_DTYPES(scale),           LOCKSTEP_DTYPES(adamw),
      LOCKSTEP_DTYPES(accumulate_few), LOCKSTEP_DTYPES(attend_one),      LOCKSTEP_DTYPES(attend_join),
      LOCKSTEP_DTYPES(add_norm),
  };
#undef LOCKSTEP_DTYPES
#undef LOCKSTEP_ONE
  return all;
}

class HostLauncher final : public GpuLauncher {
 public:
  int generation(int /*device*/) override { return 0; }
  void launch(int device, const std::string& kernel, const std::string& instance, const KernelGrid& grid,
              std::vector<KernelArgument> arguments) override {
    const auto found = kernels().find(kernel + "_" + instance);
    check(found != kernels().end(), "a kernel that there is");
    constexpr int64_t kMostY = 65535, kMostThreads = 1024;
    check(grid.y <= kMostY && grid.threads <= kMostThreads, "a grid that a GPU takes");
    const c10::Device on(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
    const c10::impl::VirtualGuardImpl guard(on.type());
    Stream& stream = stream_of(device, guard.getStream(on).id());
    stream.check_health();
    ++state().counts->launches;
    stream.push([play = found->second(arguments), grid] {
      const ThreadsOfBlock wanted = threads_of_block.load();
      const int threads = grid.together && wanted == ThreadsOfBlock::kOne ? 1 : grid.threads;
      for (int64_t x = 0; x < grid.x; ++x) {
        for (int64_t y = 0; y < grid.y; ++y) {
          if (grid.together && threads > 1) {
            const auto turn_of = [&](int thread) { here = {x, y, thread, threads}; };
            play_together(threads, wanted == ThreadsOfBlock::kLastFirst, turn_of, play);
            continue;
          }
          for (int thread = 0; thread < threads; ++thread) {
            here = {x, y, thread, threads};
            play();
          }
        }
      }
    });
  }
};

}  // namespace

void play_blocks(ThreadsOfBlock by) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)by;  // they do not follow one thread over several stacks
#else
  threads_of_block = by;
#endif
}

GpuLauncher& kernel_launcher() {
  static HostLauncher launcher;
  return launcher;
}

}  // namespace lockstep::fake_gpu
