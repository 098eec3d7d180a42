#include "lockstep/tensor/libtorch_allocators.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_set>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/hollow_ops.h"

namespace lockstep {
namespace {

std::atomic<bool>& is_shared() {
  static std::atomic<bool> shared{false};
  return shared;
}

/// Where the blocks begin that were given in a process that is shared. Of two allocators one must know its own.
class GivenBlocks {
 public:
  void add(const void* block) {
    const std::lock_guard lock(mutex_);
    if (block != nullptr) blocks_.insert(block);
  }
  void remove(const void* block) {
    if (!used_) return;
    const std::lock_guard lock(mutex_);
    blocks_.erase(block);
  }
  bool holds(const void* block) {
    const std::lock_guard lock(mutex_);
    return blocks_.contains(block);
  }
  void use() { used_ = true; }  // from here on
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;  // guards blocks_
  std::unordered_set<const void*> blocks_;
  std::atomic<bool> used_{false};
};
GivenBlocks& given_blocks() {
  // Tensors of static life are freed after everything.
  static auto* const all = new GivenBlocks;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): never freed
  return *all;
}

/// A process that is forked while another thread holds the mutex must not find it locked for ever.
void use_given_blocks() {
  given_blocks().use();
  ::pthread_atfork([] { given_blocks().lock(); }, [] { given_blocks().unlock(); }, [] { given_blocks().unlock(); });
}

/// Whether this thread's tensors are the other program's, in a process that is shared with one.
bool is_guests_thread() { return is_shared() && !DeviceMemory::stands_somewhere(); }

/// LibTorch asks this one for every tensor on the host (also those of a rehearsal, which count with the device's).
class HostAllocator final : public c10::Allocator {
 public:
  explicit HostAllocator(c10::Allocator* before) : before_(before) {
    if (is_shared()) before_deleter() = before->raw_deleter();
  }
  c10::DataPtr allocate(size_t bytes) override {
    if (is_guests_thread()) return before_->allocate(bytes);
    const auto& here = DeviceMemory::current();
    const bool counts = here->torch_device() == "cpu" || here->rehearsed();
    c10::DataPtr made = (counts ? here : DeviceMemory::host())->allocate(bytes, /*hollow=*/false);
    if (is_shared()) given_blocks().add(made.get());
    return made;
  }
  c10::DeleterFnPtr raw_deleter() const override { return is_shared() ? &free_by_address : DeviceMemory::deleter(); }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }

 private:
  static c10::DeleterFnPtr& before_deleter() {
    static c10::DeleterFnPtr deleter = nullptr;
    return deleter;
  }
  /// LibTorch gives some back by their address alone, whoever it had them of.
  static void free_by_address(void* data) {
    (given_blocks().holds(data) ? DeviceMemory::deleter() : before_deleter())(data);
  }

  c10::Allocator* before_;
};

/// And this one for every tensor without bytes.
class HollowAllocator final : public c10::Allocator {
 public:
  explicit HollowAllocator(c10::Allocator* before) : before_(before) {}
  c10::DataPtr allocate(size_t bytes) override {
    if (is_guests_thread()) return before_->allocate(bytes);
    const auto& here = DeviceMemory::current();
    if (here->rehearsed()) return here->allocate(bytes, /*hollow=*/true);
    return {nullptr, nullptr, &c10::detail::deleteNothing, c10::Device(c10::DeviceType::Meta)};
  }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  c10::Allocator* before_;
};

/// LibTorch is this program's alone.
void settle_in_process() {
  // What the matrix library keeps for later is memory that nobody counts: up to a megabyte for each shape of a product
  // in bfloat16, and 1024 of them by default. With 32 a step takes as long (measured: Qwen2 and LLaVA of 19 M parameters,
  // whose steps have 20 to 60 shapes).
  ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", std::to_string(kMadeProducts).c_str(), /*overwrite=*/0);
  ::setenv("LRU_CACHE_CAPACITY", "16", /*overwrite=*/0);  // of what LibTorch keeps of that library beside
  static const HollowOps ops;
}

}  // namespace

void share_process() { is_shared() = true; }
bool shares_process() { return is_shared(); }

void forget_given_block(const void* block) { given_blocks().remove(block); }

void install_allocators() {
  is_shared() ? use_given_blocks() : settle_in_process();
  constexpr uint8_t kAboveDefault = 1;
  c10::SetAllocator(c10::DeviceType::CPU, new HostAllocator(c10::GetAllocator(c10::DeviceType::CPU)), kAboveDefault);
  c10::SetAllocator(c10::DeviceType::Meta, new HollowAllocator(c10::GetAllocator(c10::DeviceType::Meta)),
                    kAboveDefault);
}

}  // namespace lockstep
