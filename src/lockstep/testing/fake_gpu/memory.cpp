#include "lockstep/testing/fake_gpu/memory.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include "lockstep/base/error.h"
#include "lockstep/testing/fake_gpu/state.h"
#include "lockstep/testing/fake_gpu/stream.h"

namespace lockstep::fake_gpu {
namespace {

constexpr size_t kQuantum = 512;
constexpr int kPoison = 0xFF;  // NaN in every format, and no index of anything

size_t round_up(size_t bytes) { return (bytes + kQuantum - 1) / kQuantum * kQuantum; }

char* reserve(size_t bytes, int protection) {
  void* const there = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(there != MAP_FAILED, fmt::format("fake GPU: {} bytes of addresses: {}", bytes, std::strerror(errno)));
  return static_cast<char*>(there);
}

struct Block {
  size_t bytes = 0;                 // with what rounding added
  int64_t stream = 0;               // that made it
  std::set<int64_t> other_streams;  // that were told to use it too
};

/// Freed, but other streams have not come to the end of their uses.
struct Waiting {
  size_t offset;
  Block block;
  std::vector<std::pair<std::shared_ptr<Event>, uint64_t>> uses;
};

class Device {
 public:
  Device(int index, size_t bytes)
      : index_(index),
        bytes_(bytes),
        addresses_(reserve(bytes, PROT_NONE)),
        real_(reserve(bytes, PROT_READ | PROT_WRITE)) {
    holes_[0] = bytes;
  }

  int index() const { return index_; }
  bool has(const void* address) const {
    const auto* const at = static_cast<const char*>(address);
    return at >= addresses_ && at < addresses_ + bytes_;
  }
  char* real(const void* address) const { return real_ + (static_cast<const char*>(address) - addresses_); }

  void* take(size_t wanted, int64_t stream) {
    const std::lock_guard lock(mutex_);
    const size_t bytes = round_up(wanted);
    settle();
    if (auto offset = cached(bytes, stream)) return begin(*offset, bytes_of_cached_, stream);
    if (auto offset = from_system(bytes)) return begin(*offset, bytes, stream);
    empty();
    if (auto offset = from_system(bytes)) return begin(*offset, bytes, stream);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "fake GPU ", index_, " out of memory: tried to allocate ", wanted,
                     " bytes, ", allocated_, " of ", bytes_, " are in use");
  }

  void give(void* address) {
    const std::lock_guard lock(mutex_);
    const size_t offset = static_cast<size_t>(static_cast<char*>(address) - addresses_);
    const auto found = blocks_.find(offset);
    check(found != blocks_.end(), "fake GPU: freed what is not a block");
    Block block = std::move(found->second);
    blocks_.erase(found);
    allocated_ -= block.bytes;
    if (block.other_streams.empty()) return keep(offset, block);
    Waiting waiting{offset, std::move(block), {}};
    for (const int64_t id : waiting.block.other_streams) {
      auto event = std::make_shared<Event>();
      const uint64_t moment = event->begin();
      stream_of(index_, id).push([event, moment] { event->pass(moment); });
      waiting.uses.emplace_back(std::move(event), moment);
    }
    waiting_.push_back(std::move(waiting));
  }

  void also_used_by(const void* address, int64_t stream) {
    const std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(static_cast<size_t>(static_cast<const char*>(address) - addresses_));
    if (after == blocks_.begin()) return;
    Block& block = std::prev(after)->second;
    if (block.stream != stream) block.other_streams.insert(stream);
  }

  void empty_cache() {
    const std::lock_guard lock(mutex_);
    settle();
    empty();
  }

  c10::CachingDeviceAllocator::DeviceStats stats() const {
    const std::lock_guard lock(mutex_);
    c10::CachingDeviceAllocator::DeviceStats out;
    out.allocated_bytes[0].current = static_cast<int64_t>(allocated_);
    out.allocated_bytes[0].peak = static_cast<int64_t>(most_allocated_);
    out.reserved_bytes[0].current = static_cast<int64_t>(reserved_);
    out.reserved_bytes[0].peak = static_cast<int64_t>(most_reserved_);
    return out;
  }

  void limit(double fraction) {
    const std::lock_guard lock(mutex_);
    limit_ = static_cast<size_t>(fraction * static_cast<double>(bytes_));
  }

  void reset_peaks() {
    const std::lock_guard lock(mutex_);
    most_allocated_ = allocated_;
    most_reserved_ = reserved_;
  }

  std::pair<size_t, size_t> room() const {
    const std::lock_guard lock(mutex_);
    return {bytes_ - reserved_, bytes_};
  }

 private:
  void* begin(size_t offset, size_t bytes, int64_t stream) {
    blocks_[offset] = {.bytes = bytes, .stream = stream, .other_streams = {}};
    allocated_ += bytes;
    most_allocated_ = std::max(most_allocated_, allocated_);
    return addresses_ + offset;
  }

  /// The least freed block of the stream that is large enough, if it wastes an eighth at most.
  std::optional<size_t> cached(size_t bytes, int64_t stream) {
    auto& kept = kept_[stream];
    const auto found = kept.lower_bound(bytes);
    if (found == kept.end() || found->first > bytes + bytes / 8 + kQuantum) return std::nullopt;
    const size_t offset = found->second;
    bytes_of_cached_ = found->first;
    kept.erase(found);
    return offset;
  }

  std::optional<size_t> from_system(size_t bytes) {
    if (reserved_ + bytes > limit_) return std::nullopt;
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->second < bytes) continue;
      const auto [offset, rest] = *hole;
      holes_.erase(hole);
      if (rest > bytes) holes_[offset + bytes] = rest - bytes;
      reserved_ += bytes;
      most_reserved_ = std::max(most_reserved_, reserved_);
      ++state().counts->system_allocations;
      return offset;
    }
    return std::nullopt;
  }

  void keep(size_t offset, const Block& block) {
    char* const bytes = real_ + offset;
    stream_of(index_, block.stream).push([bytes, count = block.bytes] { std::memset(bytes, kPoison, count); });
    kept_[block.stream].emplace(block.bytes, offset);
  }

  /// Blocks whose other streams have come past them.
  void settle() {
    std::erase_if(waiting_, [&](const Waiting& one) {
      if (!std::all_of(one.uses.begin(), one.uses.end(), [](const auto& use) { return use.first->over(); }))
        return false;
      keep(one.offset, one.block);
      return true;
    });
  }

  void empty() {
    synchronize_device(index_);
    settle();
    for (auto& [stream, kept] : kept_) {
      for (const auto& [bytes, offset] : kept) give_to_system(offset, bytes);
      kept.clear();
    }
  }

  void give_to_system(size_t offset, size_t bytes) {
    reserved_ -= bytes;
    auto after = holes_.emplace(offset, bytes).first;
    if (const auto next = std::next(after); next != holes_.end() && after->first + after->second == next->first) {
      after->second += next->second;
      holes_.erase(next);
    }
    if (after == holes_.begin()) return;
    if (const auto before = std::prev(after); before->first + before->second == after->first) {
      before->second += after->second;
      holes_.erase(after);
    }
  }

  const int index_;
  const size_t bytes_;
  size_t limit_ = bytes_;
  char* const addresses_;
  char* const real_;
  mutable std::mutex mutex_;                               // guards all below
  std::map<size_t, Block> blocks_;                         // in use, by offset
  std::map<int64_t, std::multimap<size_t, size_t>> kept_;  // freed: stream -> bytes -> offset
  std::map<size_t, size_t> holes_;                         // of the system: offset -> bytes
  std::vector<Waiting> waiting_;
  size_t allocated_ = 0, reserved_ = 0, most_allocated_ = 0, most_reserved_ = 0, bytes_of_cached_ = 0;
};

std::vector<std::unique_ptr<Device>>& devices() {
  static auto* const all =
      new std::vector<std::unique_ptr<Device>>;  // tensors of static life are freed after everything
  return *all;
}

Device& device_of(const void* address) {
  const auto found =
      std::find_if(devices().begin(), devices().end(), [&](const auto& one) { return one->has(address); });
  check(found != devices().end(), "fake GPU: an address of none of its devices");
  return **found;
}

constexpr auto kType = c10::DeviceType::PrivateUse1;

struct Followers {
  std::atomic<void (*)(int device, const void* address, size_t bytes)> gave{nullptr};
  std::atomic<void (*)(int device, const void* address)> took{nullptr};
};
Followers& followers() {
  static Followers all;
  return all;
}

void give_back(void* address) {
  Device& device = device_of(address);
  if (auto* const took = followers().took.load()) took(device.index(), address);
  device.give(address);
}

class FakeAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::impl::VirtualGuardImpl guard(kType);
    const c10::Device device = guard.getDevice();
    if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, device};
    at::globalContext().lazyInitDevice(kType);
    start(device.index());
    void* const data = devices().at(static_cast<size_t>(device.index()))->take(bytes, guard.getStream(device).id());
    if (auto* const gave = followers().gave.load()) gave(device.index(), data, bytes);
    return {data, data, &give_back, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(real(to), real(from), count); }

  bool initialized() override { return state().initialized; }
  void emptyCache(c10::MempoolId_t) override {
    for (const auto& device : devices()) device->empty_cache();
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() != nullptr) device_of(data.get()).also_used_by(data.get(), stream.id());
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return of(device).stats();
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { of(device).reset_peaks(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override { return of(device).room(); }

 private:
  /// CUDA's allocator knows no device before LibTorch has started it.
  static Device& of(c10::DeviceIndex device) {
    TORCH_CHECK(state().initialized, "fake GPU: the allocator is not initialized");
    return *devices().at(static_cast<size_t>(device));
  }
};

/// Addresses of pinned blocks.
struct Pinned {
  std::mutex mutex;
  std::map<const char*, size_t> blocks;
};
Pinned& pinned() {
  static auto* const all = new Pinned;
  return *all;
}

void free_pinned(void* data) {
  {
    const std::lock_guard lock(pinned().mutex);
    pinned().blocks.erase(static_cast<const char*>(data));
  }
  std::free(data);  // NOLINT(cppcoreguidelines-no-malloc)
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, c10::Device(c10::DeviceType::CPU)};
    void* const data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);  // NOLINT(cppcoreguidelines-no-malloc)
    check(data != nullptr, "fake GPU: pinned memory");
    const std::lock_guard lock(pinned().mutex);
    pinned().blocks[static_cast<const char*>(data)] = bytes;
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
};

}  // namespace

void make_memory(int count, int64_t bytes) {
  for (int i = 0; i < count; ++i) devices().push_back(std::make_unique<Device>(i, static_cast<size_t>(bytes)));
  c10::SetAllocator(kType, &allocator());
}

const std::shared_ptr<DeviceMemory>& scratch() {
  static const auto* const one = new std::shared_ptr(DeviceMemory::make("fake GPU", {}));
  return *one;
}

void follow_memory(void (*gave)(int device, const void* address, size_t bytes),
                   void (*took)(int device, const void* address)) {
  followers().gave = gave;
  followers().took = took;
}

void limit_memory(int device, double fraction) { devices().at(static_cast<size_t>(device))->limit(fraction); }

c10::DeviceAllocator& allocator() {
  static auto* const one = new FakeAllocator;
  return *one;
}

void* real(const void* address) { return address == nullptr ? nullptr : device_of(address).real(address); }

c10::Allocator& pinned_allocator() {
  static auto* const one = new PinnedAllocator;
  return *one;
}

bool pin(void* begin, size_t bytes) {
  const std::lock_guard lock(pinned().mutex);
  return pinned().blocks.emplace(static_cast<const char*>(begin), bytes).second;
}

void unpin(const void* begin) {
  const std::lock_guard lock(pinned().mutex);
  pinned().blocks.erase(static_cast<const char*>(begin));
}

bool is_pinned(const void* address) {
  const std::lock_guard lock(pinned().mutex);
  const auto* const at = static_cast<const char*>(address);
  const auto after = pinned().blocks.upper_bound(at);
  if (after == pinned().blocks.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return at < begin + bytes;
}

}  // namespace lockstep::fake_gpu
