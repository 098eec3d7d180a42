// What LibTorch asks for memory, so that every tensor comes from a DeviceMemory: in a process of our own for all threads, in one
// that is another program's too for those of ours alone.
//
// Example, of a module that a Python loads beside torch:
//   share_process();                                  // before anything of LibTorch is asked for
//   const OnDevice ours(DeviceMemory::host());        // of a thread that works for us: its tensors are counted
#pragma once

namespace lockstep {

/// Another program uses LibTorch in this process as well: threads that stand on no device keep the allocators that it has, and
/// its settings stay as they are.
void share_process();
bool shares_process();

/// Products that the matrix library keeps as it has made them, each for a shape; where the process is shared it may keep more.
inline constexpr int kMadeProducts = 32;

/// Once; DeviceMemory::host() does it.
void install_allocators();
/// `block` of DeviceMemory::allocate() is about to go.
void forget_given_block(const void* block);

}  // namespace lockstep
