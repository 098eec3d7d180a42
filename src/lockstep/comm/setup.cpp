#include "lockstep/comm/setup.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/comm/backend_gloo.h"
#include "lockstep/comm/backend_shm.h"
#include "lockstep/comm/backend_solo.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep {

Transport transport_from_flag(const std::string& name) {
  if (name == "auto") return Transport::kAuto;
  if (name == "gloo") return Transport::kGloo;
  if (name == "shm") return Transport::kShm;
  if (name == "nccl") return Transport::kNccl;
  throw usage_error(fmt::format("--transport \"{}\": expected auto, gloo, shm or nccl", name));
}

namespace {

std::unique_ptr<Backend> make_host_backend(const World& world, Rendezvous& rendezvous, const ConnectOptions& options,
                                           const std::string& name) {
  if (options.transport != Transport::kGloo) {  // the control group of GPUs too
    const int64_t slot_bytes = name == "control" ? int64_t{64} << 10 : int64_t{4} << 20;
    auto shared =
        make_shm_backend(world, rendezvous, {.name = name, .slot_bytes = slot_bytes, .patience = options.patience});
    if (shared != nullptr) return shared;
    if (options.transport == Transport::kShm) {
      throw usage_error("--transport shm: the ranks do not share a /dev/shm with room",
                        "all ranks must run on one host (in a container: --ipc=host or a larger --shm-size); or use "
                        "--transport gloo");
    }
  }
  return make_gloo_backend(world, rendezvous, name,
                           {.connecting = options.rendezvous_patience, .calls = options.patience});
}

}  // namespace

namespace {

/// The index in "cuda:0"; nothing for the CPU.
std::optional<int> gpu_of(const std::string& device) {
  if (device.rfind("cuda", 0) != 0) return std::nullopt;
  return device == "cuda" ? 0 : std::stoi(device.substr(device.find(':') + 1));
}

/// Opens the CUDA library and takes the GPU, before anything makes a tensor there; refuses transports that do not fit.
void prepare_device(const ConnectOptions& options) {
  const auto gpu = gpu_of(options.device);
  if (!gpu) {
    if (options.transport != Transport::kNccl) return;
    throw usage_error(fmt::format("--transport nccl: the device is {}, NCCL connects GPUs", options.device),
                      "use --transport auto, or --device cuda");
  }
  if (options.transport == Transport::kGloo || options.transport == Transport::kShm) {
    throw usage_error(fmt::format("--transport {}: the parameters are on {}, which NCCL connects",
                                  options.transport == Transport::kGloo ? "gloo" : "shm", options.device),
                      "use --transport auto, or --device cpu");
  }
  require_cuda_library().set_device(*gpu);
}

std::string key_of(std::string_view word, int rank) { return fmt::format("{}/{}", word, rank); }

/// Waits until every rank has set `word`/rank, so that a missing one is named and not just a key.
void wait_for_all(const World& world, Rendezvous& rendezvous, std::string_view word, Clock::duration patience) {
  const Deadline deadline(patience);
  std::vector<std::string> missing;
  for (int r = 0; r < world.size; ++r) {
    try {
      rendezvous.get(key_of(word, r), std::max<Clock::duration>(deadline.left(), std::chrono::milliseconds(10)));
    } catch (const CollectiveError&) {
      missing.push_back(std::to_string(r));
    }
  }
  if (missing.empty()) return;
  throw CollectiveError(
      fmt::format("rank {} of {} ({}): {} of {} ranks came to {}:{} within {}; missing: rank{} {}", world.rank,
                  world.size, world.source, world.size - static_cast<int>(missing.size()), world.size,
                  world.master_addr, world.master_port,
                  format_duration(std::chrono::duration<double>(patience).count()), missing.size() == 1 ? "" : "s",
                  join(missing, ", ")),
      "look at the output of the missing ranks; all must be started, with the same MASTER_ADDR and MASTER_PORT");
}

}  // namespace

CommSetup connect_over(const World& world, Rendezvous& rendezvous, const ConnectOptions& options) {
  const CommOptions comm{.patience = options.patience};
  CommSetup setup;
  setup.control = std::make_unique<Communicator>(world, make_host_backend(world, rendezvous, options, "control"), comm);
  const auto gpu = gpu_of(options.device);
  auto data = gpu ? make_nccl_backend(world, rendezvous, *gpu, options.patience)
                  : make_host_backend(world, rendezvous, options, "data");
  setup.data = std::make_unique<Communicator>(world, std::move(data), comm);
  return setup;
}

CommSetup connect(const World& world, const ConnectOptions& options) {
  const CommOptions comm{.patience = options.patience};
  prepare_device(options);
  if (world.size == 1) {
    return {std::make_unique<Communicator>(world, make_solo_backend(options.device), comm),
            std::make_unique<Communicator>(world, make_solo_backend("cpu"), comm)};
  }
  const auto rendezvous = Rendezvous::tcp(world, options.rendezvous_patience);
  rendezvous->set(key_of("arrived", world.rank), "here");
  wait_for_all(world, *rendezvous, "arrived", options.rendezvous_patience);
  CommSetup setup = connect_over(world, *rendezvous, options);
  // Rank 0 may host the meeting point: it takes it away only when nobody reads there any more.
  rendezvous->set(key_of("connected", world.rank), "done");
  if (world.rank == 0) wait_for_all(world, *rendezvous, "connected", options.rendezvous_patience);
  return setup;
}

}  // namespace lockstep
