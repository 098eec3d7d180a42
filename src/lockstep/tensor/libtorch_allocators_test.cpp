#include "lockstep/tensor/libtorch_allocators.h"

#include <cstdio>
#include <cstdlib>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>

#include "lockstep/tensor/device_memory.h"

namespace lockstep {
namespace {

void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

/// In a process of its own: what is shared stays so.
[[noreturn]] void share_with_another_program() {
  const auto allocator = [] { return c10::GetAllocator(c10::DeviceType::CPU); };
  void* const early = allocator()->raw_allocate(5000);
  const Tensor before = at::empty({5000});
  share_process();
  const auto host = DeviceMemory::host();
  const Tensor theirs = at::empty({5000});
  require(DeviceMemory::of(theirs) == nullptr, "a thread that stands nowhere keeps LibTorch's allocator");
  void* late = nullptr;
  {
    const OnDevice ours(host);
    const Tensor counted = at::empty({5000});
    require(DeviceMemory::of(counted) == host && host->alive_bytes() >= 20000,
            "a thread on a device has its tensors counted");
    late = allocator()->raw_allocate(5000);
  }
  // By their addresses alone, on a thread that stands nowhere: each goes back to whom it came from.
  require(host->alive_bytes() >= 5000, "what is given as an address counts");
  allocator()->raw_deallocate(late);
  allocator()->raw_deallocate(early);
  require(host->alive_bytes() == 0, "all is back");
  require(at::empty({4, 4}, at::device(c10::kMeta)).numel() == 16, "tensors without bytes can be made");
  require(std::getenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY") == nullptr, "LibTorch's settings stay");
  std::exit(0);
}

TEST(SharedProcess, KeepsTheOtherProgramsTensorsApart) {
  ::unsetenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY");
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // from its beginning, before other tests have asked for the host
  EXPECT_EXIT(share_with_another_program(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep
