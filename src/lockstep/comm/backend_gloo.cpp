#include "lockstep/comm/backend_gloo.h"

#include <utility>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rank_sum.h"
#include "lockstep/comm/rendezvous_store.h"
#include "lockstep/comm/world.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

using C10Work = c10::intrusive_ptr<c10d::Work>;

std::chrono::milliseconds milliseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

/// Gloo tells a timeout only in words.
bool is_timeout(const std::string& text) {
  return text.find("Timed out") != std::string::npos || text.find("timed out") != std::string::npos;
}

class GlooWork final : public Work {
 public:
  GlooWork(C10Work work, std::function<void()> after) : work_(std::move(work)), after_(std::move(after)) {}

  void finish(Clock::duration patience) override {
    try {
      work_->wait(milliseconds(patience));
    } catch (const std::exception& e) {
      if (is_timeout(e.what())) throw CommTimeout{};
      throw;
    }
    if (after_) after_();
  }

 private:
  C10Work work_;
  std::function<void()> after_;
};

class GlooBackend final : public Backend {
 public:
  GlooBackend(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, int size) : group_(std::move(group)), size_(size) {}

  std::unique_ptr<Work> all_gather(const Tensor& full, const Tensor& shard) override {
    Tensor out = full, in = shard;
    return started(group_->_allgather_base(out, in), {});
  }

  /// All-to-all and a local sum: twice as fast as Gloo's own reduce-scatter, and the order of the sum is ours.
  std::unique_ptr<Work> reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate) override {
    Tensor in = staged, received = at::detail::empty_cpu(staged.sizes(), staged.options());
    std::vector<int64_t> even;
    return started(group_->alltoall_base(received, in, even, even), [=, this] {
      sum_in_rank_order(static_cast<float*>(sum.data_ptr()), parts_of(received), dtype_of(received), sum.numel(),
                        accumulate);
    });
  }

  std::unique_ptr<Work> all_reduce(const Tensor& value, bool maximum) override {
    Tensor mine = value.reshape({-1}).clone();
    Tensor all = at::detail::empty_cpu({mine.numel() * size_}, mine.options());
    return started(group_->_allgather_base(all, mine), [=, this] {
      reduce_in_rank_order(value.data_ptr(), parts_of(all), dtype_of(all), mine.numel(), maximum);
    });
  }

  std::unique_ptr<Work> broadcast(const Tensor& value, int root) override {
    std::vector<Tensor> tensors{value};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return started(group_->broadcast(tensors, options), {});
  }

  Tensor staging(int64_t numel, int scalar_type) override {
    return at::detail::empty_cpu({numel}, at::TensorOptions().dtype(static_cast<at::ScalarType>(scalar_type)));
  }
  int64_t max_staging_bytes() const override { return int64_t{64} << 20; }
  std::string name() const override { return "gloo"; }
  void abort() override { group_->abort(); }

 private:
  static std::unique_ptr<Work> started(C10Work work, std::function<void()> after) {
    return std::make_unique<GlooWork>(std::move(work), std::move(after));
  }

  std::vector<const void*> parts_of(const Tensor& all) const {
    std::vector<const void*> parts;
    const auto* base = static_cast<const char*>(all.data_ptr());
    const auto stride = static_cast<int64_t>(all.nbytes()) / size_;
    for (int r = 0; r < size_; ++r) parts.push_back(base + r * stride);
    return parts;
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  int size_;
};

}  // namespace

Rendezvous::Rendezvous(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Rendezvous::~Rendezvous() = default;

std::shared_ptr<Rendezvous> Rendezvous::in_process() {
  auto impl = std::make_unique<Impl>();
  impl->store = c10::make_intrusive<c10d::HashStore>();
  return std::shared_ptr<Rendezvous>(new Rendezvous(std::move(impl)));
}

std::shared_ptr<Rendezvous> Rendezvous::tcp(const World& world, Clock::duration patience) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(world.master_port);
  options.isServer = world.rank == 0 && !world.agent_hosts_store;
  options.waitWorkers = false;
  options.timeout = milliseconds(patience);
  auto impl = std::make_unique<Impl>();
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(world.master_addr, options);
    impl->store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("lockstep/{}", world.restart), std::move(store));
  } catch (const std::exception& e) {
    throw CollectiveError(
        fmt::format("rank {} of {}: the meeting point {}:{} was not reached within {} ({})", world.rank, world.size,
                    world.master_addr, world.master_port,
                    format_duration(std::chrono::duration<double>(patience).count()), e.what()),
        "MASTER_ADDR and MASTER_PORT must name rank 0's host and a free port on it, the same on all ranks");
  }
  return std::shared_ptr<Rendezvous>(new Rendezvous(std::move(impl)));
}

void Rendezvous::set(const std::string& key, const std::string& value) {
  impl_->store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

std::string Rendezvous::get(const std::string& key, Clock::duration patience) {
  try {
    impl_->store->wait({key}, milliseconds(patience));
    const auto bytes = impl_->store->get(key);
    return {bytes.begin(), bytes.end()};
  } catch (const std::exception&) {
    throw CollectiveError(
        fmt::format("\"{}\" did not come within {}", key,
                    format_duration(std::chrono::duration<double>(patience).count())),
        "a rank did not start, or ended before it met the others: look for the first error among the ranks");
  }
}

std::unique_ptr<Backend> make_gloo_backend(const World& world, Rendezvous& rendezvous, const std::string& name,
                                           Clock::duration patience) {
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(patience));
  options->threads = 2;
  // One host: the loopback device; a host's own name may resolve to an address nobody listens on.
  options->devices.push_back(world.num_nodes == 1 ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                                  : c10d::ProcessGroupGloo::createDefaultDevice());
  auto store = c10::make_intrusive<c10d::PrefixStore>(name, rendezvous.impl().store);
  auto group =
      c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), world.rank, world.size, std::move(options));
  return std::make_unique<GlooBackend>(std::move(group), world.size);
}

}  // namespace lockstep
