// Linked beside main.cpp into lockstep_on_fake_gpus: before main(), LOCKSTEP_FAKE_GPUS=4 installs four fake GPUs for the
// process, of LOCKSTEP_FAKE_GPU_BYTES each. LOCKSTEP_FAKE_GPU_STALL="1 calls 5000": on rank 1 all streams but the default
// ones stand still once so many calls were queued, as where a call between GPUs never ends; "1 kernels 5000": the default
// streams do, as where a kernel never ends.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <new>
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

void stall_after(int64_t launches, FakeGpu::Hold::Which streams) {
  std::thread([launches, streams] {
    while (FakeGpu::counts().launches < launches) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    new FakeGpu::Hold(streams);  // for ever
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
  std::istringstream stall(env.text("LOCKSTEP_FAKE_GPU_STALL").value_or(""));
  std::string rank, what;
  int64_t launches = 0;
  if (stall >> rank >> what >> launches && rank == env.text("RANK").value_or("0")) {
    stall_after(launches, what == "kernels" ? FakeGpu::Hold::Which::kDefault : FakeGpu::Hold::Which::kOthers);
  }
  return true;
}();

}  // namespace
}  // namespace lockstep
