// Memory of the fake GPUs. An address that a tensor has may not be touched by the host; the bytes stand elsewhere, at real().
//
// Like CUDA's, the allocator keeps freed blocks by stream: a block is given out again at once on the stream that it was made
// on, since that stream comes to its next use after its last one. Another stream's use counts where recordStream told it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lockstep/tensor/device_memory.h"

namespace c10 {
struct Allocator;
struct DeviceAllocator;
}  // namespace c10

namespace lockstep::fake_gpu {

/// Reserves addresses for all devices, and takes the place of LibTorch's allocator.
void make_memory(int devices, int64_t bytes);
c10::DeviceAllocator& allocator();
/// Of the host, for what CPU kernels need while they stand in for the GPU's: no part of what the program holds.
const std::shared_ptr<DeviceMemory>& scratch();
/// Tells of blocks given to the calling thread, and of those that are back.
void follow_memory(void (*gave)(int device, const void* address, size_t bytes),
                   void (*took)(int device, const void* address));
/// A device gives so much of itself and no more.
void limit_memory(int device, double fraction);
/// Where the bytes of a device address stand.
void* real(const void* address);

/// Host memory that a device copies from and to by itself. Stays the block's while a copy uses it.
c10::Allocator& pinned_allocator();
bool is_pinned(const void* address);
/// The same of memory that stands already.
bool pin(void* begin, size_t bytes);
void unpin(const void* begin);

}  // namespace lockstep::fake_gpu
