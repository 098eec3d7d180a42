#include "lockstep/tensor/device_memory.h"

#include <memory>
#include <string>
#include <thread>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/devices.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;

Tensor bytes(int64_t count) { return empty({count}, Dtype::kU8); }

TEST(DeviceMemory, CountsTensorsWhereTheThreadStands) {
  const auto one = DeviceMemory::make("one", {}), two = DeviceMemory::make("two", {});
  const OnDevice outer(one);
  const Tensor a = bytes(1000);
  Tensor b;
  {
    const OnDevice inner(two);
    const UsedFor use(MemoryUse::kGradients);
    b = bytes(2 * kMiB);
  }
  EXPECT_EQ(one->alive_bytes(), 1024);  // in multiples of a cache line
  EXPECT_EQ(two->alive_bytes(), 2 * kMiB);
  EXPECT_EQ(two->figures().by_use[static_cast<size_t>(MemoryUse::kGradients)], 2 * kMiB);
  EXPECT_EQ(DeviceMemory::of(a), one);
  EXPECT_EQ(DeviceMemory::of(b.narrow(0, 5, 10)), two);
  EXPECT_EQ(move_to(b, two).data_ptr(), b.data_ptr());
  const Tensor c = move_to(b.fill_(7), one);
  EXPECT_EQ(DeviceMemory::of(c), one);
  EXPECT_TRUE(c.equal(b));
}

TEST(DeviceMemory, CountsItsPartOfMemoryThatStandsElsewhere) {
  const auto device = DeviceMemory::make("device", {.limit = 10 * kKiB});
  const auto elsewhere = std::make_shared<std::string>(64 * kKiB, 'x');
  const std::weak_ptr<std::string> alive = elsewhere;
  {
    const c10::DataPtr here = device->borrow(elsewhere->data(), elsewhere, 8 * kKiB);
    EXPECT_EQ(here.get(), elsewhere->data());
    EXPECT_EQ(device->alive_bytes(), 8 * kKiB);
    EXPECT_EQ(alive.use_count(), 2);
    EXPECT_THROW(device->borrow(elsewhere->data(), elsewhere, 4 * kKiB), UserError);
  }
  EXPECT_EQ(device->alive_bytes(), 0);
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(DeviceMemory, KeepsThePeakOfEachPhaseAndWhereItWas) {
  const auto device = DeviceMemory::make("device", {});
  const OnDevice scope(device);
  Tensor kept;
  {
    std::string block = "layers.3, whose name does not outlive the pass";
    memory_stands_at(MemoryPhase::kForward, block);
    block.assign(block.size(), '?');
    kept = bytes(64 * kKiB);
    bytes(32 * kKiB);
  }
  memory_stands_at(MemoryPhase::kStep, "head");
  const MemoryFigures figures = device->figures();
  EXPECT_EQ(figures.peak().bytes, 96 * kKiB);
  EXPECT_EQ(figures.peak_phase(), MemoryPhase::kForward);
  EXPECT_EQ(figures.peak().at, "layers.3, whose name does not outlive the pass");
  EXPECT_EQ(figures.phases[static_cast<size_t>(MemoryPhase::kStep)].bytes, 64 * kKiB);  // what it began with
  device->reset_peaks();
  EXPECT_EQ(device->peak_bytes(), 64 * kKiB);
}

TEST(DeviceMemory, RefusesMoreThanItsLimitAndSaysWhoHoldsWhat) {
  const auto device = DeviceMemory::make("virtual:1", {.limit = kMiB});
  const OnDevice scope(device);
  const UsedFor use(MemoryUse::kParams);
  const Tensor held = bytes(700 * kKiB);
  memory_stands_at(MemoryPhase::kBackward, "layers.5");
  try {
    const UsedFor inner(MemoryUse::kActivations);
    bytes(400 * kKiB);
    FAIL() << "nothing was refused";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kMemory);
    const std::string text = error.what();
    for (const char* part : {"virtual:1 is full", "400.00 KiB more for activations of layers.5 (backward)",
                             "700.00 KiB of 1.00 MiB", "parameters 700.00 KiB"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  EXPECT_EQ(device->alive_bytes(), 700 * kKiB);  // what was refused is not held
  EXPECT_NO_THROW(bytes(300 * kKiB));
}

TEST(DeviceMemory, HollowTensorsCountAndHoldNothing) {
  const auto device = DeviceMemory::make("rehearsed", {.torch_device = "meta"});
  const OnDevice scope(device);
  const Tensor huge = empty({int64_t{1} << 40}, Dtype::kF32, "meta");
  EXPECT_EQ(device->alive_bytes(), int64_t{1} << 42);
  EXPECT_EQ(DeviceMemory::of(huge), device);
}

TEST(DeviceMemory, TensorsMayBeFreedByOtherThreadsAndOutliveTheirDevice) {
  auto device = DeviceMemory::make("short", {});
  Tensor kept;
  {
    const OnDevice scope(device);
    kept = bytes(kMiB).fill_(3);
  }
  device.reset();
  std::thread([moved = std::move(kept)]() mutable {
    EXPECT_EQ(moved.sum().item<int64_t>(), 3 * kMiB);
    moved = Tensor();
  }).join();
}

TEST(DeviceMemory, FreedBlocksServeOthersOfAboutTheirSize) {
  const auto device = DeviceMemory::make("cache", {});
  const OnDevice scope(device);
  const void* first = nullptr;
  {
    const Tensor large = bytes(4 * kMiB);
    first = large.data_ptr();
  }
  const Tensor smaller = bytes(4 * kMiB - 100 * kKiB);
  EXPECT_EQ(smaller.data_ptr() == first, device->keeps_freed_blocks());
  EXPECT_EQ(device->alive_bytes(), 4 * kMiB - 100 * kKiB);
}

}  // namespace
}  // namespace lockstep
