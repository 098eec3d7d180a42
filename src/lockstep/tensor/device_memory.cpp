#include "lockstep/tensor/device_memory.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/tensor/block_arena.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/libtorch_allocators.h"

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepsFreedBlocks = false;  // so that the sanitizer sees reads behind the end and after the free
#else
constexpr bool kKeepsFreedBlocks = true;
#endif

namespace lockstep {
namespace {

constexpr size_t kLarge = size_t{4} << 10;  // from here on blocks stand in the device's own arena
constexpr size_t kAlignment = BlockArena::kQuantum;
/// What is held exceeds the most that was alive at once by such a part at most, so that the process is hardly larger than
/// the count says. Without that room, the moment that needs most would give pages back in every step and fault them in again.
constexpr size_t kRoomPart = 32;

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
    size_t counted = 0, placed = 0;  // placed: bytes of the arena, 0 where it does not stand there
    MemoryUse use = MemoryUse::kActivations;
  };
  static_assert(sizeof(Ticket) <= kAlignment);

  void count(size_t bytes, const Standing& at) { count(bytes, at.use, at.phase, at.block); }
  void count(size_t bytes, MemoryUse use, MemoryPhase phase, const std::string& block) {
    figures.alive += static_cast<int64_t>(bytes);
    figures.by_use.at(static_cast<size_t>(use)) += static_cast<int64_t>(bytes);
    most_alive = std::max(most_alive, figures.alive);
    figures.most_held = std::max(figures.most_held, held());
    MemoryPeak& peak = figures.phases.at(static_cast<size_t>(phase));
    if (figures.alive <= peak.bytes) return;
    peak.bytes = figures.alive;
    peak.by_use = figures.by_use;
    peak.at = block;
  }

  void uncount(const Ticket& ticket) {
    figures.alive -= static_cast<int64_t>(ticket.counted);
    figures.by_use.at(static_cast<size_t>(ticket.use)) -= static_cast<int64_t>(ticket.counted);
  }

  /// What the process has of the system for tensors: pages of the arena, and all that stands elsewhere.
  int64_t held() const { return static_cast<int64_t>(arena.held()) + alive_elsewhere; }

  /// Where a tensor and its ticket stand; null for a hollow one that has no place in the arena.
  void* take_bytes(const Ticket& ticket, size_t bytes, int64_t limit, bool hollow) {
    void* block = nullptr;
    if (ticket.placed > 0) {
      const auto most = static_cast<size_t>(most_alive);
      const auto rest =
          limit == kNoLimit ? SIZE_MAX : static_cast<size_t>(std::max<int64_t>(0, limit - alive_elsewhere));
      block = arena.take(ticket.placed, std::min(most + most / kRoomPart, rest));
    } else {
      if (!hollow) {
        block = std::aligned_alloc(kAlignment, bytes);  // NOLINT: LibTorch's alignment
        if (block == nullptr) throw std::bad_alloc();
      }
      alive_elsewhere += static_cast<int64_t>(ticket.counted);
    }
    figures.most_held = std::max(figures.most_held, held());
    return block;
  }

  void give_back(const Ticket& ticket, void* block) {
    uncount(ticket);
    if (ticket.placed > 0) {
      arena.give(block, ticket.placed);
    } else {
      alive_elsewhere -= static_cast<int64_t>(ticket.counted);
      std::free(block);  // NOLINT(cppcoreguidelines-no-malloc)
    }
  }

  static Ticket& ticket_of(void* data) { return *reinterpret_cast<Ticket*>(static_cast<char*>(data) - kAlignment); }

  static void free_bytes(void* data) {
    if (data == nullptr) return;
    forget_given_block(data);
    Ticket* stored = &ticket_of(data);
    const Ticket ticket = std::move(*stored);
    stored->~Ticket();
    Impl& impl = *ticket.home->impl_;
    const std::lock_guard lock(impl.mutex);
    impl.give_back(ticket, stored);
  }

  /// Of a hollow tensor, or a borrowed one, whose ticket cannot stand before its bytes.
  struct HollowTicket {
    Ticket ticket;
    void* block = nullptr;
    std::shared_ptr<const void> owner = nullptr;  // of bytes that stand elsewhere
  };

  static void free_hollow(void* context) {
    const std::unique_ptr<HollowTicket> hollow(static_cast<HollowTicket*>(context));
    Impl& impl = *hollow->ticket.home->impl_;
    const std::lock_guard lock(impl.mutex);
    impl.give_back(hollow->ticket, hollow->block);
  }

  explicit Impl(bool hollow) : arena(hollow) {}

  mutable std::mutex mutex;                        // guards all below
  std::unordered_map<const void*, Ticket> on_gpu;  // without a home: they go with it
  MemoryPhase last_phase = MemoryPhase::kLoad;     // where the rank last stood on this device
  std::string last_block;
  MemoryFigures figures;
  int64_t most_alive = 0, alive_elsewhere = 0;
  BlockArena arena;
};

DeviceMemory::DeviceMemory(std::string name, Options options)
    : name_(std::move(name)), options_(std::move(options)), impl_(std::make_unique<Impl>(rehearsed())) {}
DeviceMemory::~DeviceMemory() = default;

namespace {

/// GPUs keep their tensors themselves, so that a tensor only says the GPU's number.
struct Gpus {
  std::mutex mutex;
  std::map<int, std::weak_ptr<DeviceMemory>> by_number;

  std::shared_ptr<DeviceMemory> of(int number) {
    const std::lock_guard lock(mutex);
    const auto found = by_number.find(number);
    return found == by_number.end() ? nullptr : found->second.lock();
  }
};
Gpus& gpus() {
  static auto* const all = new Gpus;  // tensors of static life are freed after everything
  return *all;
}

}  // namespace

std::shared_ptr<DeviceMemory> DeviceMemory::make(std::string name, Options options) {
  host();
  const std::optional<int> gpu = gpu_of(options.torch_device);
  std::shared_ptr<DeviceMemory> made(new DeviceMemory(std::move(name), std::move(options)));
  if (gpu) {
    const std::lock_guard lock(gpus().mutex);
    gpus().by_number[*gpu] = made;
  }
  return made;
}

const std::shared_ptr<DeviceMemory>& DeviceMemory::host() {
  // Never destroyed: tensors of static life are freed after everything.
  static const auto* const made = [] {
    install_allocators();
    return new std::shared_ptr<DeviceMemory>(new DeviceMemory("cpu", {}));
  }();
  return *made;
}

bool DeviceMemory::stands_somewhere() { return standing().device != nullptr; }

const std::shared_ptr<DeviceMemory>& DeviceMemory::current() {
  const auto& here = standing().device;
  return here ? here : host();
}

std::shared_ptr<DeviceMemory> DeviceMemory::of(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  if (is_gpu(tensor.device())) return gpus().of(tensor.device().index());
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
  Impl::Ticket ticket{
      .home = shared_from_this(), .counted = round_up(bytes, static_cast<size_t>(options_.rounding)), .use = at.use};
  const c10::Device device(hollow ? c10::DeviceType::Meta : c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, device};
  void* block = nullptr;
  {
    const std::lock_guard lock(impl_->mutex);
    if (static_cast<int64_t>(ticket.counted) > options_.limit - impl_->figures.alive) refuse(ticket.counted);
    impl_->count(ticket.counted, at);
    try {
      const size_t with_ticket = round_up(bytes, kAlignment) + kAlignment;
      const bool in_arena = bytes >= kLarge && kKeepsFreedBlocks && hollow == rehearsed();
      if (in_arena && (!hollow || options_.row_kernels)) ticket.placed = with_ticket;
      block = impl_->take_bytes(ticket, with_ticket, options_.limit, hollow);
    } catch (const std::bad_alloc&) {
      impl_->uncount(ticket);
      refuse(ticket.counted);
    }
  }
  if (hollow) return {nullptr, new Impl::HollowTicket{std::move(ticket), block, nullptr}, &Impl::free_hollow, device};
  new (block) Impl::Ticket(std::move(ticket));
  void* data = static_cast<char*>(block) + kAlignment;
  return {data, data, &Impl::free_bytes, device};
}

c10::DataPtr DeviceMemory::borrow(void* bytes, std::shared_ptr<const void> owner, size_t counted) {
  c10::DataPtr ticket = allocate(counted, /*hollow=*/true);
  if (auto* const held = static_cast<Impl::HollowTicket*>(ticket.get_context())) held->owner = std::move(owner);
  return {bytes, ticket.release_context(), &Impl::free_hollow,
          rehearsed() ? c10::DeviceType::Meta : c10::DeviceType::CPU};
}

std::shared_ptr<DeviceMemory> DeviceMemory::of_gpu(int gpu) { return gpus().of(gpu); }

void DeviceMemory::gpu_gave(int gpu, const void* address, size_t bytes) {
  const auto device = gpus().of(gpu);
  if (!device) return;
  Impl& impl = *device->impl_;
  const size_t counted = round_up(bytes, static_cast<size_t>(device->options_.rounding));
  const std::lock_guard lock(impl.mutex);
  const MemoryUse use = standing().use;
  impl.on_gpu[address] = {.home = nullptr, .counted = counted, .placed = 0, .use = use};
  impl.alive_elsewhere += static_cast<int64_t>(counted);
  // Of a GPU autograd's backward runs on threads of its own, which stand nowhere.
  impl.count(counted, use, impl.last_phase, impl.last_block);
}

void DeviceMemory::gpu_took(int gpu, const void* address) {
  const auto device = gpus().of(gpu);
  if (!device) return;
  Impl& impl = *device->impl_;
  const std::lock_guard lock(impl.mutex);
  const auto found = impl.on_gpu.find(address);
  if (found == impl.on_gpu.end()) return;  // from before the device was made
  impl.uncount(found->second);
  impl.alive_elsewhere -= static_cast<int64_t>(found->second.counted);
  impl.on_gpu.erase(found);
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
  impl_->last_phase = standing().phase;
  impl_->last_block = standing().block;
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
