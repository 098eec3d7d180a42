#include "lockstep/comm/setup.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/machine.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/backend_gloo.h"
#include "lockstep/comm/backend_shm.h"
#include "lockstep/comm/backend_solo.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/gpus.h"
#include "lockstep/comm/meeting.h"
#include "lockstep/comm/own_address.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/guard/frames.h"
#include "lockstep/guard/meeting_words.h"
#include "lockstep/guard/tree_link.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {

namespace {

constexpr std::array<std::pair<std::string_view, Transport>, 4> kTransports = {
    {{"auto", Transport::kAuto}, {"gloo", Transport::kGloo}, {"shm", Transport::kShm}, {"nccl", Transport::kNccl}}};

}  // namespace

std::string transport_name(Transport transport) {
  for (const auto& [name, value] : kTransports) {
    if (value == transport) return std::string(name);
  }
  return "auto";
}

Transport transport_from_flag(const std::string& name) {
  for (const auto& [known, transport] : kTransports) {
    if (known == name) return transport;
  }
  throw usage_error(fmt::format("--transport \"{}\": expected auto, gloo, shm or nccl", name));
}

namespace {

std::unique_ptr<Backend> make_host_backend(const World& world, Rendezvous& rendezvous, const ConnectOptions& options,
                                           const std::string& name) {
  if (options.transport != Transport::kGloo) {  // the control group of GPUs too
    const int64_t slot_bytes = name == "control" ? kControlSlotBytes : kDataSlotBytes;
    auto shared = make_shm_backend(world, rendezvous,
                                   {.name = name,
                                    .slot_bytes = slot_bytes,
                                    .patience = options.patience,
                                    .connecting = options.rendezvous_patience});
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
                                  transport_name(options.transport), options.device),
                      "use --transport auto, or --device cpu");
  }
  (void)require_cuda_library();
  stand_on_gpu(options.device);
}

}  // namespace

namespace {

/// An ending unblocks the main thread where a transport can: the communicators may come into being after the member.
struct AbortTarget {
  std::mutex mutex;
  Communicator *data = nullptr, *control = nullptr;

  void set(Communicator* new_data, Communicator* new_control) {
    const std::lock_guard lock(mutex);
    data = new_data;
    control = new_control;
  }
  void abort() {
    const std::lock_guard lock(mutex);
    if (data != nullptr) data->abort();
    if (control != nullptr) control->abort();
  }
};

std::unique_ptr<Member> join(const World& world, const ConnectOptions& options, Recorder& recorder,
                             const std::string& address, const std::shared_ptr<AbortTarget>& target) {
  return std::make_unique<Member>(
      recorder, MemberOptions{.address = address,
                              .identity = own_identity(world.rank, world.size, world.local_rank, world.node),
                              .on_ending = [target](const Ending&) { target->abort(); },
                              .before_exit = options.before_exit});
}

/// Another launcher has started us: the first rank of each node starts the agent, the others learn of it.
std::string agent_of_node(const World& world, const ConnectOptions& options, Rendezvous& rendezvous) {
  const std::string key = meeting_key("agent", world.node);
  if (world.local_rank == 0) {
    const std::string address = options.spawn_agent(world);
    rendezvous.answer(key, address);
    return address;
  }
  return rendezvous.ask(key, options.rendezvous_patience);
}

/// What a node's first rank says of its agent at the meeting point.
struct TreeEntry {
  std::string host;
  int port = 0;
  std::string salt;  // of the root alone
};

TreeEntry tree_entry(const World& world, Rendezvous& rendezvous, int node, Clock::duration patience) {
  const std::string key = meeting_key("tree", node), text = rendezvous.get(key, patience);
  const auto words = split(text, ' ');
  TreeEntry entry;
  if (words.size() >= 2) {
    const char* const end = words[1].data() + words[1].size();
    const auto [read, fault] = std::from_chars(words[1].data(), end, entry.port);
    entry.host = words[0];
    if (words.size() == 3) entry.salt = words[2];
    if (fault == std::errc() && read == end && entry.salt.empty() == (node > 0)) return entry;
  }
  throw CollectiveError(
      fmt::format(
          "rank {} of {}: {} at the meeting point {}:{} should name the agent of node {} (host, port{}), and is "
          "{} bytes of something else",
          world.rank, world.size, key, world.master_addr, world.master_port, node, node == 0 ? ", salt" : "",
          text.size()),
      "start all nodes with the same version; somebody else may write there: see SECURITY.md");
}

/// The agents of the nodes find each other through their first ranks; later they need the meeting point no more. What
/// stands there is no secret: the salt makes a key only together with LOCKSTEP_JOB_SECRET. Each agent has its key before
/// others learn where it is.
void join_tree(const World& world, const Member& member, const ConnectOptions& options, Rendezvous& rendezvous) {
  if (world.num_nodes < 2 || world.local_rank != 0 || member.tree_port() == 0) return;
  const std::string key = meeting_key("tree", world.node);
  if (world.node == 0) {
    const std::string salt = random_token();
    member.tell_salt(salt);
    return rendezvous.set(key, fmt::format("{} {} {}", world.master_addr, member.tree_port(), salt));
  }
  TreeEntry parent = tree_entry(world, rendezvous, 0, options.rendezvous_patience);
  member.tell_salt(parent.salt);
  rendezvous.set(key, fmt::format("{} {}", own_address_towards(world.master_addr), member.tree_port()));
  const int node = tree_parent(world.node);
  if (node > 0) parent = tree_entry(world, rendezvous, node, options.rendezvous_patience);
  member.tell_parent(parent.host, parent.port);
}

}  // namespace

CommSetup connect_over(const World& world, Rendezvous& rendezvous, const ConnectOptions& options) {
  CommSetup setup{.recorder = options.recorder != nullptr ? options.recorder : std::make_shared<Recorder>()};
  setup.control = std::make_unique<Communicator>(
      world, make_host_backend(world, rendezvous, options, "control"),
      CommOptions{.patience = options.patience, .recorder = setup.recorder, .group = "control"});
  require_own_gpus(*setup.control, world.node, options.device);
  auto data = gpu_of(options.device) ? make_nccl_backend(world, rendezvous, "nccl", options.device, options.patience)
                                     : make_host_backend(world, rendezvous, options, "data");
  setup.data = std::make_unique<Communicator>(
      world, std::move(data), CommOptions{.patience = options.patience, .recorder = setup.recorder, .group = "data"});
  return setup;
}

CommSetup connect(const World& given_world, const ConnectOptions& given) {
  World world = given_world;
  ConnectOptions options = given;
  if (options.recorder == nullptr) options.recorder = std::make_shared<Recorder>();
  Recorder& recorder = *options.recorder;
  prepare_device(options);
  if (world.size == 1) {
    CommSetup alone{.recorder = options.recorder};
    alone.data = std::make_unique<Communicator>(world, make_solo_backend(options.device),
                                                CommOptions{.recorder = options.recorder, .group = "data"});
    alone.control = std::make_unique<Communicator>(world, make_solo_backend("cpu"),
                                                   CommOptions{.recorder = options.recorder, .group = "control"});
    return alone;
  }
  recorder.add_fact("world size", std::to_string(world.size));
  const auto target = std::make_shared<AbortTarget>();
  std::unique_ptr<Member> member;
  if (!options.agent.empty()) member = join(world, options, recorder, options.agent, target);
  recorder.enter_phase(Phase::kStart, fmt::format("{}{}:{}", kMeeting, world.master_addr, world.master_port));
  const auto rendezvous = Rendezvous::tcp(world, options.rendezvous_patience);
  Meeting meeting(given_world, *rendezvous, options.rendezvous_patience, recorder, own_place(), own_reach(given_world));
  // An agent watches who comes, and is there first; but it is a node's, and not every launcher says which is which.
  if (!given_world.node_known) world = meeting.arrive();
  if (member == nullptr && options.spawn_agent) {
    member = join(world, options, recorder, agent_of_node(world, options, *rendezvous), target);
  }
  if (given_world.node_known) meeting.arrive();
  if (member != nullptr) join_tree(world, *member, options, *rendezvous);
  recorder.enter_phase(Phase::kStart, kConnecting);
  // What fails here is told before the meeting point closes: others only see that it is gone.
  CommSetup setup = recorder.confessing([&] { return connect_over(world, *rendezvous, options); });
  target->set(setup.data.get(), setup.control.get());
  setup.member = std::move(member);
  // Rank 0 may host the meeting point: it takes it away only when nobody reads there any more.
  rendezvous->set(meeting_key("connected", world.rank), "done");
  if (world.rank == 0) meeting.wait_for_all("connected", [](int, const std::string&) {});
  recorder.enter_phase(Phase::kStart);
  if (options.keep_meeting_point) setup.meeting_point = rendezvous;
  return setup;
}

}  // namespace lockstep
