// Every op of LibTorch on the fake GPU: queued on the current stream, computed by the CPU's kernel on the bytes behind the
// addresses.
#pragma once

namespace lockstep::fake_gpu {

void register_ops();

}  // namespace lockstep::fake_gpu
