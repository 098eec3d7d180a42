#include "lockstep/tensor/device_memory.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/tensor/hollow_ops.h"

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepsFreedBlocks = false;  // so that the sanitizer sees reads behind the end and after the free
#else
constexpr bool kKeepsFreedBlocks = true;
#endif

namespace lockstep {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLarge = size_t{256} << 10;  // from here on blocks are mapped, reused and given back by ourselves
constexpr size_t kAlignment = 64;

struct Standing {
  std::shared_ptr<DeviceMemory> device;
  MemoryUse use = MemoryUse::kActivations;
  MemoryPhase phase = MemoryPhase::kLoad;
  std::string block;
};
Standing& standing() {
  thread_local Standing here;
  return here;
}

size_t round_up(size_t bytes, size_t quantum) { return (bytes + quantum - 1) / quantum * quantum; }

void* map_block(size_t bytes) {
  void* block = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();
  if (bytes >= (size_t{1} << 21)) ::madvise(block, bytes, MADV_HUGEPAGE);
  return block;
}

/// Freed large blocks wait here for the next taker. What is mapped exceeds the most that was alive at once by an eighth
/// at most, so that the process is hardly larger than the count says: without that room, the moment that needs most
/// would give blocks back and map others in every step, and their page faults cost more than the work (measured: 1.1
/// million in 12 steps of a small model, 0.27 million with it). Of hollow tensors the blocks are null, and go the same
/// ways: so a rehearsal knows what the process will hold.
class BlockCache {
 public:
  ~BlockCache() {
    while (!free_.empty()) unmap(free_.begin());
  }

  struct Mapped {
    void* data;
    size_t bytes;
  };

  /// `room`: what may be mapped while free blocks are kept. `strict`: a block that is taken hardly exceeds its tensor.
  Mapped take(size_t bytes, size_t room, bool strict, bool hollow) {
    const auto found = free_.lower_bound(bytes);
    if (found != free_.end() && found->first <= bytes + bytes / (strict ? 64 : 4)) {
      const Mapped block{found->second, found->first};
      free_.erase(found);
      return block;
    }
    while (!free_.empty() && mapped_ + bytes > room) unmap(std::prev(free_.end()));
    void* const block = hollow ? nullptr : map_block(bytes);
    mapped_ += bytes;
    return {block, bytes};
  }

  void give(Mapped block) { free_.emplace(block.bytes, block.data); }
  size_t mapped() const { return mapped_; }

 private:
  void unmap(std::multimap<size_t, void*>::iterator at) {
    if (at->second != nullptr) ::munmap(at->second, at->first);
    mapped_ -= at->first;
    free_.erase(at);
  }

  std::multimap<size_t, void*> free_;
  size_t mapped_ = 0;
};

}  // namespace

std::string_view memory_use_name(MemoryUse use) {
  constexpr std::array<std::string_view, kMemoryUses> kNames{"parameters",  "gradients", "optimizer",    "gathered",
                                                             "activations", "logits",    "communication"};
  return kNames.at(static_cast<size_t>(use));
}

std::string_view memory_phase_name(MemoryPhase phase) {
  constexpr std::array<std::string_view, kMemoryPhases> kNames{"load", "forward", "backward",
                                                               "step", "save",    "evaluate"};
  return kNames.at(static_cast<size_t>(phase));
}

const MemoryPeak& MemoryFigures::peak() const { return phases.at(static_cast<size_t>(peak_phase())); }

MemoryPhase MemoryFigures::peak_phase() const {
  const auto* most = std::max_element(phases.begin(), phases.end(),
                                      [](const MemoryPeak& a, const MemoryPeak& b) { return a.bytes < b.bytes; });
  return static_cast<MemoryPhase>(most - phases.begin());
}

struct DeviceMemory::Impl {
  /// Who is charged for a tensor. Stands before its bytes, since LibTorch frees some by their address alone.
  struct Ticket {
    std::shared_ptr<DeviceMemory> home;
    size_t counted = 0, mapped = 0;
    MemoryUse use = MemoryUse::kActivations;
  };
  static_assert(sizeof(Ticket) <= kAlignment);

  void count(size_t bytes, const Standing& at) {
    figures.alive += static_cast<int64_t>(bytes);
    figures.by_use.at(static_cast<size_t>(at.use)) += static_cast<int64_t>(bytes);
    most_alive = std::max(most_alive, figures.alive);
    figures.most_held = std::max(figures.most_held, held());
    MemoryPeak& peak = figures.phases.at(static_cast<size_t>(at.phase));
    if (figures.alive <= peak.bytes) return;
    peak.bytes = figures.alive;
    peak.by_use = figures.by_use;
    peak.at = at.block;
  }

  void uncount(const Ticket& ticket) {
    figures.alive -= static_cast<int64_t>(ticket.counted);
    figures.by_use.at(static_cast<size_t>(ticket.use)) -= static_cast<int64_t>(ticket.counted);
  }

  /// What the process has of the system for tensors: blocks in use or waiting, and all that is small.
  int64_t held() const { return static_cast<int64_t>(cache.mapped()) + alive_unmapped; }

  /// The bytes of a tensor, and what was mapped for it (0: nothing); null for a hollow one.
  void* take_bytes(size_t bytes, Ticket& ticket, int64_t limit, bool hollow) {
    void* block = nullptr;
    if (ticket.mapped == 0) {
      if (!hollow) {
        block = std::aligned_alloc(kAlignment, round_up(bytes, kAlignment));  // NOLINT: LibTorch's alignment
        if (block == nullptr) throw std::bad_alloc();
      }
      alive_unmapped += static_cast<int64_t>(ticket.counted);
    } else {
      const auto most = static_cast<size_t>(most_alive);
      const bool limited = limit != kNoLimit;
      const auto rest = limited ? static_cast<size_t>(std::max<int64_t>(0, limit - alive_unmapped)) : SIZE_MAX;
      const auto taken = cache.take(ticket.mapped, std::min(most + most / 8, rest), limited, hollow);
      ticket.mapped = taken.bytes;
      block = taken.data;
    }
    figures.most_held = std::max(figures.most_held, held());
    return block;
  }

  void give_back(const Ticket& ticket, void* block) {
    uncount(ticket);
    if (ticket.mapped > 0) {
      cache.give({block, ticket.mapped});
    } else {
      alive_unmapped -= static_cast<int64_t>(ticket.counted);
      std::free(block);  // NOLINT(cppcoreguidelines-no-malloc)
    }
  }

  static Ticket& ticket_of(void* data) { return *reinterpret_cast<Ticket*>(static_cast<char*>(data) - kAlignment); }

  static void free_bytes(void* data) {
    if (data == nullptr) return;
    Ticket* stored = &ticket_of(data);
    const Ticket ticket = std::move(*stored);
    stored->~Ticket();
    Impl& impl = *ticket.home->impl_;
    const std::lock_guard lock(impl.mutex);
    impl.give_back(ticket, stored);
  }

  static void free_hollow(void* context) {
    const std::unique_ptr<Ticket> ticket(static_cast<Ticket*>(context));
    Impl& impl = *ticket->home->impl_;
    const std::lock_guard lock(impl.mutex);
    impl.give_back(*ticket, nullptr);
  }

  mutable std::mutex mutex;  // guards all below
  MemoryFigures figures;
  int64_t most_alive = 0, alive_unmapped = 0;
  BlockCache cache;
};

namespace {

/// LibTorch asks this one for every tensor on the host (also those of a rehearsal, which count with the device's).
class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto& here = DeviceMemory::current();
    const bool counts = here->torch_device() == "cpu" || here->rehearsed();
    return (counts ? here : DeviceMemory::host())->allocate(bytes, /*hollow=*/false);
  }
  c10::DeleterFnPtr raw_deleter() const override { return DeviceMemory::deleter(); }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }
};

/// And this one for every tensor without bytes.
class HollowAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto& here = DeviceMemory::current();
    if (here->rehearsed()) return here->allocate(bytes, /*hollow=*/true);
    return {nullptr, nullptr, &c10::detail::deleteNothing, c10::Device(c10::DeviceType::Meta)};
  }
  void copy_data(void*, const void*, size_t) const override {}
};

}  // namespace

DeviceMemory::DeviceMemory(std::string name, Options options)
    : name_(std::move(name)), options_(std::move(options)), impl_(std::make_unique<Impl>()) {}
DeviceMemory::~DeviceMemory() = default;

namespace {

/// GPUs keep their tensors themselves, so that a tensor only says the GPU's number.
struct Gpus {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<DeviceMemory>> by_name;
};
Gpus& gpus() {
  static Gpus all;
  return all;
}

}  // namespace

std::shared_ptr<DeviceMemory> DeviceMemory::make(std::string name, Options options) {
  host();
  const bool gpu = options.torch_device.starts_with("cuda");
  std::shared_ptr<DeviceMemory> made(new DeviceMemory(std::move(name), std::move(options)));
  if (gpu) {
    const std::lock_guard lock(gpus().mutex);
    gpus().by_name[made->torch_device()] = made;
  }
  return made;
}

const std::shared_ptr<DeviceMemory>& DeviceMemory::host() {
  // Never destroyed: tensors of static life are freed after everything.
  static const auto* const made = [] {
    // What the matrix library keeps for later is memory that nobody counts: up to a megabyte for each shape of a product
    // in bfloat16, and 1024 of them by default. With 32 a step takes as long (measured: Qwen2 and LLaVA of 19 M parameters,
    // whose steps have 20 to 60 shapes).
    ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32", /*overwrite=*/0);
    ::setenv("LRU_CACHE_CAPACITY", "16", /*overwrite=*/0);  // of what LibTorch keeps of that library beside
    constexpr uint8_t kAboveDefault = 1;
    c10::SetAllocator(c10::DeviceType::CPU, new HostAllocator, kAboveDefault);
    c10::SetAllocator(c10::DeviceType::Meta, new HollowAllocator, kAboveDefault);
    register_hollow_ops();
    return new std::shared_ptr<DeviceMemory>(new DeviceMemory("cpu", {}));
  }();
  return *made;
}

const std::shared_ptr<DeviceMemory>& DeviceMemory::current() {
  const auto& here = standing().device;
  return here ? here : host();
}

std::shared_ptr<DeviceMemory> DeviceMemory::of(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  if (tensor.is_cuda()) {
    const std::lock_guard lock(gpus().mutex);
    const auto found = gpus().by_name.find(tensor.device().str());
    return found == gpus().by_name.end() ? nullptr : found->second.lock();
  }
  const auto& data = tensor.storage().data_ptr();
  if (data.get_deleter() == &Impl::free_hollow) return static_cast<const Impl::Ticket*>(data.get_context())->home;
  if (data.get_deleter() != &Impl::free_bytes || data.get_context() == nullptr) return nullptr;
  return Impl::ticket_of(data.get_context()).home;
}

void (*DeviceMemory::deleter())(void*) { return &Impl::free_bytes; }

void DeviceMemory::set_limit(int64_t bytes) {
  const std::lock_guard lock(impl_->mutex);
  options_.limit = bytes;
}

void DeviceMemory::refuse(size_t bytes) const {
  const Standing& at = standing();
  const MemoryFigures& held = impl_->figures;
  std::string uses;
  for (size_t use = 0; use < kMemoryUses; ++use) {
    if (held.by_use.at(use) == 0) continue;
    uses += fmt::format("{}{} {}", uses.empty() ? "" : ", ", memory_use_name(static_cast<MemoryUse>(use)),
                        format_bytes(held.by_use.at(use)));
  }
  // Without a limit of its own it is the system that gives no more.
  const std::string has = options_.limit == kNoLimit ? "" : fmt::format(" of {}", format_bytes(options_.limit));
  throw UserError(ExitCode::kMemory,
                  fmt::format("{} is full: {} more for {}{} ({}), while {}{} are in use ({})", name_,
                              format_bytes(static_cast<int64_t>(bytes)), memory_use_name(at.use),
                              at.block.empty() ? "" : fmt::format(" of {}", at.block), memory_phase_name(at.phase),
                              format_bytes(held.alive), has, uses),
                  "`lockstep plan` with the same flags shows what is needed and the cheapest changes that make it fit");
}

c10::DataPtr DeviceMemory::allocate(size_t bytes, bool hollow) {
  const Standing& at = standing();
  const bool large = bytes >= kLarge;
  Impl::Ticket ticket{.home = shared_from_this(),
                      .counted = round_up(bytes, large ? kPage : static_cast<size_t>(options_.rounding)),
                      .use = at.use};
  const c10::Device device(hollow ? c10::DeviceType::Meta : c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, device};
  void* block = nullptr;
  {
    const std::lock_guard lock(impl_->mutex);
    if (static_cast<int64_t>(ticket.counted) > options_.limit - impl_->figures.alive) refuse(ticket.counted);
    impl_->count(ticket.counted, at);
    try {
      const size_t with_ticket = bytes + kAlignment;
      if (large && kKeepsFreedBlocks && (!hollow || options_.row_kernels)) ticket.mapped = round_up(with_ticket, kPage);
      block = impl_->take_bytes(with_ticket, ticket, options_.limit, hollow);
    } catch (const std::bad_alloc&) {
      impl_->uncount(ticket);
      refuse(ticket.counted);
    }
  }
  if (hollow) return {nullptr, new Impl::Ticket(std::move(ticket)), &Impl::free_hollow, device};
  new (block) Impl::Ticket(std::move(ticket));
  void* data = static_cast<char*>(block) + kAlignment;
  return {data, data, &Impl::free_bytes, device};
}

MemoryFigures DeviceMemory::figures() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->figures;
}

int64_t DeviceMemory::alive_bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->figures.alive;
}

int64_t DeviceMemory::peak_bytes() const { return figures().peak().bytes; }

void DeviceMemory::look() {
  const std::lock_guard lock(impl_->mutex);
  impl_->count(0, standing());
}

void DeviceMemory::reset_peaks() {
  const std::lock_guard lock(impl_->mutex);
  impl_->figures.phases = {};
  impl_->figures.most_held = impl_->held();
  impl_->figures.phases.at(static_cast<size_t>(standing().phase)) = {impl_->figures.alive, impl_->figures.by_use, ""};
}

bool DeviceMemory::keeps_freed_blocks() { return kKeepsFreedBlocks; }

OnDevice::OnDevice(std::shared_ptr<DeviceMemory> device)
    : before_(std::exchange(standing().device, std::move(device))) {}
OnDevice::~OnDevice() { standing().device = std::move(before_); }

UsedFor::UsedFor(MemoryUse use) : before_(std::exchange(standing().use, use)) {}
UsedFor::~UsedFor() { standing().use = before_; }

void memory_stands_at(MemoryPhase phase, std::string_view block) {
  standing().phase = phase;
  standing().block = block;
  DeviceMemory::current()->look();
}

}  // namespace lockstep
