#include "lockstep/comm/pair_group.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/comm/backend_gloo.h"
#include "lockstep/comm/backend_shm.h"
#include "lockstep/comm/cuda_library.h"

namespace lockstep {
namespace {

std::unique_ptr<Backend> make_backend(const World& pair, Rendezvous& meeting_point, const std::string& name,
                                      const PairOptions& options) {
  if (options.transport == "nccl") {
    return make_nccl_backend(pair, meeting_point, name, options.device, options.patience);
  }
  if (options.transport == "gloo") {
    return make_gloo_backend(pair, meeting_point, name, {.connecting = options.patience, .calls = options.patience});
  }
  check(options.transport == "shared memory", "no pairs over the transport " + options.transport);
  auto shared = make_shm_backend(pair, meeting_point,
                                 {.name = name, .patience = options.patience, .connecting = options.patience});
  if (shared == nullptr) throw CollectiveError(name + ": no room in /dev/shm for one more group of two ranks", "");
  return shared;
}

}  // namespace

std::unique_ptr<Communicator> connect_pair(const World& world, Rendezvous& meeting_point, int peer,
                                           const PairOptions& options) {
  const auto [first, second] = std::minmax(world.rank, peer);
  World pair = world;  // of as many nodes as the job, so that it takes the same network
  pair.rank = world.rank == first ? 0 : 1;
  pair.size = 2;
  return std::make_unique<Communicator>(
      pair, make_backend(pair, meeting_point, fmt::format("{}-{}-{}", options.name, first, second), options),
      CommOptions{.patience = options.patience, .group = "pair"});
}

}  // namespace lockstep
