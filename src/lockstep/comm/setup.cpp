#include "lockstep/comm/setup.h"

#include <fmt/format.h>

#include "lockstep/comm/backend_gloo.h"
#include "lockstep/comm/backend_shm.h"
#include "lockstep/comm/backend_solo.h"
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
  if (options.transport != Transport::kGloo) {
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
  return make_gloo_backend(world, rendezvous, name, options.rendezvous_patience);
}

}  // namespace

CommSetup connect_over(const World& world, Rendezvous& rendezvous, const ConnectOptions& options) {
  const CommOptions comm{.patience = options.patience};
  CommSetup setup;
  setup.control = std::make_unique<Communicator>(world, make_host_backend(world, rendezvous, options, "control"), comm);
  setup.data = std::make_unique<Communicator>(world, make_host_backend(world, rendezvous, options, "data"), comm);
  return setup;
}

CommSetup connect(const World& world, const ConnectOptions& options) {
  const CommOptions comm{.patience = options.patience};
  if (world.size == 1) {
    return {std::make_unique<Communicator>(world, make_solo_backend(options.device), comm),
            std::make_unique<Communicator>(world, make_solo_backend("cpu"), comm)};
  }
  const auto rendezvous = Rendezvous::tcp(world, options.rendezvous_patience);
  return connect_over(world, *rendezvous, options);
}

}  // namespace lockstep
