#include "lockstep/comm/backend_gloo.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/happens_before.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/own_address.h"
#include "lockstep/comm/rank_sum.h"
#include "lockstep/comm/rendezvous_store.h"
#include "lockstep/comm/world.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(200);

using C10Work = c10::intrusive_ptr<c10d::Work>;

std::chrono::milliseconds milliseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

/// Gloo tells a timeout only in words.
bool is_timeout(const std::string& text) {
  return text.find("Timed out") != std::string::npos || text.find("timed out") != std::string::npos;
}

/// What a backend and its calls share: whether it must not be used, or waited for, any more.
struct GlooState {
  std::atomic<bool> aborted{false}, broken{false};
};

/// That Gloo's own thread is done with a call, which may be long before somebody waits for it.
class CallEnd {
 public:
  void tell() {
    const std::lock_guard lock(mutex_);
    at_ = Clock::now();
    told_.notify_all();
  }
  bool within(Clock::duration patience) {
    std::unique_lock lock(mutex_);
    return told_.wait_for(lock, patience, [&] { return at_.has_value(); });
  }
  std::optional<Clock::time_point> at() const {
    const std::lock_guard lock(mutex_);
    return at_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable told_;
  std::optional<Clock::time_point> at_;
};

class GlooWork final : public Work {
 public:
  GlooWork(C10Work work, std::function<void()> after, std::shared_ptr<GlooState> state)
      : work_(std::move(work)), after_(std::move(after)), state_(std::move(state)) {
    ordered_before(end_.get());
    const GivenAway callback;
    work_->getFuture()->addCallback(
        [end = end_](c10::ivalue::Future&) {
          ordered_after(end.get());
          end->tell();
        },
        /*uses_future=*/false);
  }

  /// Waits in slices and looks around between them. c10d's own wait with a limit throws when that passes, and leaves it open
  /// whether the call has ended meanwhile.
  void finish(Clock::duration patience) override {
    const Deadline deadline(patience);
    while (!end_->within(std::min<Clock::duration>(kSlice, deadline.left()))) {
      if (state_->aborted) throw std::runtime_error("aborted on this rank");
      if (!deadline.passed()) continue;
      state_->broken = true;
      throw CommTimeout{};
    }
    take_result();
    if (!after_) return;
    const auto begun = Clock::now();
    after_();
    summing_ = Clock::now() - begun;
  }

  TransportTimes times() const override {
    const auto end = end_->at();
    if (!end) return {};  // Gloo did not say
    return {.busy = std::max(*end - launched_, Clock::duration::zero()) + summing_, .busy_told = true};
  }

 private:
  void take_result() {
    try {
      work_->wait();
    } catch (const std::exception& e) {
      state_->broken = true;
      if (is_timeout(e.what())) throw CommTimeout{};
      throw;
    }
  }

  C10Work work_;
  std::function<void()> after_;
  std::shared_ptr<GlooState> state_;
  const Clock::time_point launched_ = Clock::now();
  std::shared_ptr<CallEnd> end_ = std::make_shared<CallEnd>();
  Clock::duration summing_{};
};

class GlooBackend final : public Backend {
 public:
  GlooBackend(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, int size) : group_(std::move(group)), size_(size) {}

  /// A group with a call that never ends would wait for it in its destructor: left to the end of the process.
  ~GlooBackend() override {
    if (state_->aborted || state_->broken) static_cast<void>(group_.release());
  }

  std::unique_ptr<Work> all_gather(const Tensor& full, const Tensor& shard) override {
    Tensor out = as_bytes(full), in = as_bytes(shard);
    return started(group_->_allgather_base(out, in), {});
  }

  /// All-to-all and a local sum: twice as fast as Gloo's own reduce-scatter, and the order of the sum is ours.
  std::unique_ptr<Work> reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate) override {
    Tensor in = as_bytes(staged), received = at::detail::empty_cpu(in.sizes(), in.options());
    std::vector<int64_t> even;
    return started(group_->alltoall_base(received, in, even, even), [=, this] {
      sum_in_rank_order(static_cast<float*>(sum.data_ptr()), parts_of(received), dtype_of(staged), sum.numel(),
                        accumulate);
    });
  }

  std::unique_ptr<Work> all_reduce(const Tensor& value, bool maximum) override {
    check(value.is_contiguous(), "all_reduce takes contiguous tensors");
    Tensor mine = value.view({-1}).clone();
    Tensor all = at::detail::empty_cpu({mine.numel() * size_}, mine.options());
    return started(group_->_allgather_base(all, mine), [=, this] {
      reduce_in_rank_order(value.data_ptr(), parts_of(all), dtype_of(all), mine.numel(), maximum);
    });
  }

  std::unique_ptr<Work> broadcast(const Tensor& value, int root) override {
    std::vector<Tensor> tensors{as_bytes(value)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return started(group_->broadcast(tensors, options), {});
  }

  Tensor staging(int64_t numel, int scalar_type) override {
    return at::detail::empty_cpu({numel}, at::TensorOptions().dtype(static_cast<at::ScalarType>(scalar_type)));
  }
  int64_t max_staging_bytes() const override { return kGlooStagingBytes; }
  std::string name() const override { return "gloo"; }
  void abort() override { state_->aborted = true; }

 private:
  /// Gloo does not know every dtype, and need not: it only moves bytes here.
  static Tensor as_bytes(const Tensor& tensor) {
    check(tensor.is_contiguous(), "Gloo takes contiguous tensors");
    // The deleter keeps the tensor while Gloo has the view: a call given up on may still write.
    return at::from_blob(
        tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())}, [tensor](void*) {}, at::kByte);
  }

  std::unique_ptr<Work> started(C10Work work, std::function<void()> after) const {
    return std::make_unique<GlooWork>(std::move(work), std::move(after), state_);
  }

  std::vector<const void*> parts_of(const Tensor& all) const {
    std::vector<const void*> parts;
    parts.reserve(static_cast<size_t>(size_));
    const auto* base = static_cast<const char*>(all.data_ptr());
    const auto stride = static_cast<int64_t>(all.nbytes()) / size_;
    for (int r = 0; r < size_; ++r) parts.push_back(base + r * stride);
    return parts;
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  int size_;
  std::shared_ptr<GlooState> state_ = std::make_shared<GlooState>();
};

/// With an address of either kind, each once.
std::vector<std::string> own_interfaces() {
  std::vector<std::string> names;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return names;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const int family = one->ifa_addr == nullptr ? AF_UNSPEC : one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (std::ranges::find(names, one->ifa_name) == names.end()) names.emplace_back(one->ifa_name);
  }
  ::freeifaddrs(all);
  return names;
}

void require_interface(const std::string& name) {
  const auto names = own_interfaces();
  if (names.empty() || std::ranges::find(names, name) != names.end()) return;
  throw usage_error(
      fmt::format("GLOO_SOCKET_IFNAME={}: expected a network interface of this host that has an address, found "
                  "none; it has {}",
                  name, join(names, ", ")),
      "name the one that leads to the other hosts, or leave the variable out");
}

std::shared_ptr<gloo::transport::Device> device_for(const World& world) {
  using Gloo = c10d::ProcessGroupGloo;
  if (!world.interface.empty()) {
    const std::string first = world.interface.substr(0, world.interface.find(','));
    require_interface(first);
    return Gloo::createDeviceForInterface(first);
  }
  if (world.num_nodes == 1) return Gloo::createDeviceForHostname("127.0.0.1");
  const std::string address = own_address_towards(world.master_addr);
  return address.empty() ? Gloo::createDefaultDevice() : Gloo::createDeviceForHostname(address);
}

/// LibTorch keeps a recorder of its own, which several groups of one process must not write at once (their threads
/// crash in its map). Ours knows more.
void switch_off_foreign_recorder() {
  static const int done = ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
  static_cast<void>(done);
}

}  // namespace

std::unique_ptr<Backend> make_gloo_backend(const World& world, Rendezvous& rendezvous, const std::string& name,
                                           const GlooPatience& patience) {
  constexpr int kTries = 5;  // of Gloo, each with all of its time-out
  const Clock::duration a_try = std::max<Clock::duration>(patience.connecting / kTries, std::chrono::seconds(10));
  switch_off_foreign_recorder();
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(a_try));
  options->threads = 2;
  options->devices.push_back(device_for(world));
  check(rendezvous.joined(), "ranks have met before they are connected");
  auto store = c10::make_intrusive<c10d::PrefixStore>(name, rendezvous.impl().store);
  try {
    auto group =
        c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), world.rank, world.size, std::move(options));
    group->setTimeout(milliseconds(patience.calls));
    return std::make_unique<GlooBackend>(std::move(group), world.size);
  } catch (const std::exception& e) {
    throw CollectiveError(
        fmt::format("rank {} of {} ({}): the other ranks, which have come to {}:{}, cannot be connected to: {}",
                    world.rank, world.size, own_address_towards(world.master_addr), world.master_addr,
                    world.master_port, first_line(e.what())),
        "the hosts must reach each other on every port, not on MASTER_PORT alone: look at firewalls between "
        "them; GLOO_SOCKET_IFNAME chooses another network interface");
  }
}

}  // namespace lockstep
