// Linked beside main.cpp into lockstep_on_fake_gpus: before main(), LOCKSTEP_FAKE_GPUS=4 installs four fake GPUs for the
// process, of LOCKSTEP_FAKE_GPU_BYTES each. LOCKSTEP_FAKE_GPU_FAULT="1 calls 5000": on rank 1, once so many calls were queued,
// all streams but the default ones stand still, as where a call between GPUs never ends; "1 kernels 5000": the default
// streams do, as where a kernel never ends; "1 slow 5000 500": each kernel takes 500 us more; "1 breaks 5000": the device
// answers everything with an error. The moment is written to FAULT_MARK, where that is given, by both clocks, in ns;
// FAULT_ONCE 1: it does not come again while that is there.
// LOCKSTEP_FAKE_GPU_COUNTS=path: what was counted stands in path.<rank> (FakeGpu::count_in).
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "lockstep/base/env.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/gpu_driver.h"
#include "lockstep/testing/fake_gpu/fake_gpu.h"
#include "lockstep/testing/fake_gpu/fake_group.h"

namespace lockstep {
namespace {

constexpr int64_t kSlowUs = 500;  // a kernel of a slow GPU, longer than it usually takes

void write_mark(const std::string& path) {
  const auto ns = [](const auto& clock) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(clock.time_since_epoch()).count();
  };
  std::ofstream(path) << ns(std::chrono::steady_clock::now()) << ' ' << ns(std::chrono::system_clock::now()) << '\n';
}

void make_fault(const std::string& what, int64_t us) {
  if (what == "calls") new FakeGpu::Hold(FakeGpu::Hold::Which::kOthers);  // for ever
  if (what == "kernels") new FakeGpu::Hold(FakeGpu::Hold::Which::kDefault);
  if (what == "slow") FakeGpu::delay(std::chrono::microseconds(us), std::chrono::microseconds(0));
  if (what == "breaks") FakeGpu::break_with("CUDA error: an illegal memory access was encountered");
}

/// On one rank, once so many calls were queued.
void make_fault_later(const Env& env, const std::string& rank_here) {
  std::istringstream fault(env.text("LOCKSTEP_FAKE_GPU_FAULT").value_or(""));
  std::string rank, what;
  int64_t launches = 0, us = kSlowUs;
  if (!(fault >> rank >> what >> launches) || rank != rank_here) return;
  fault >> us;
  const auto mark = env.text("FAULT_MARK");
  if (mark && env.text("FAULT_ONCE") == "1" && std::filesystem::exists(*mark)) return;
  std::thread([launches, what, us, mark] {
    while (FakeGpu::counts().launches < launches) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (mark) write_mark(*mark);
    make_fault(what, us == 0 ? kSlowUs : us);
  }).detach();
}

[[maybe_unused]] const bool kInstalled = [] {
  const Env env = Env::process();
  const auto count = static_cast<int>(env.integer("LOCKSTEP_FAKE_GPUS").value_or(0));
  if (count == 0) return false;
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // of the threads that begin here, as a driver does it for its own
  FakeGpu::install(count, env.integer("LOCKSTEP_FAKE_GPU_BYTES").value_or(int64_t{1} << 30));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  static GpuDriver driver{.there = true, .failure = "", .uuids = {}, .type = "fakegpu"};
  for (int i = 0; i < count; ++i) driver.uuids.push_back(fmt::format("GPU-fake-{}", i));
  GpuDriver::use_in_process(&driver);
  use_cuda_library(&fake_cuda_api());
  const std::string rank = env.text("RANK").value_or("0");
  if (const auto path = env.text("LOCKSTEP_FAKE_GPU_COUNTS")) FakeGpu::count_in(*path + "." + rank);
  make_fault_later(env, rank);
  return true;
}();

}  // namespace
}  // namespace lockstep
