// What LibTorch's C++ lacks for tensors without bytes: shapes of the ops that models use.
#pragma once

namespace lockstep {

/// Once a process; DeviceMemory does it.
void register_hollow_ops();

}  // namespace lockstep
