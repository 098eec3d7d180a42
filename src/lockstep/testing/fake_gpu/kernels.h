// The program's GPU kernels, compiled for the host: what runs them on fake GPUs.
#pragma once

#include <cstdint>

#include "lockstep/tensor/gpu_launcher.h"

namespace lockstep::fake_gpu {

GpuLauncher& kernel_launcher();

/// Who plays a block whose threads meet: one thread, which is quick, or all of them in one order or the other
/// (meeting_threads.h): then what a barrier is missing for comes out wrong.
enum class ThreadsOfBlock : uint8_t { kOne, kFirstFirst, kLastFirst };
void play_blocks(ThreadsOfBlock by);

}  // namespace lockstep::fake_gpu
