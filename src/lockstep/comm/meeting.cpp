#include "lockstep/comm/meeting.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "lockstep/base/machine.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/own_address.h"
#include "lockstep/guard/frames.h"
#include "lockstep/guard/meeting_words.h"

namespace lockstep {
namespace {

constexpr Clock::duration kSoonest = std::chrono::milliseconds(5), kLatest = std::chrono::milliseconds(250);
constexpr const char *kQuarrel = "quarrel", *kLeaves = "leaves";
/// Rank 0 takes the meeting point away when it ends: it stays until the others have read there why they leave too; for a while
/// even then, since two of them may be the same rank, and not for ever, since one may never come.
constexpr Clock::duration kStaysAtLeast = 4 * kLatest, kStaysAtMost = 12 * kLatest;

}  // namespace

std::string meeting_key(std::string_view word, int number) { return fmt::format("{}/{}", word, number); }

std::string own_place() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string start;
  in >> start;
  return fmt::format("{}/{}", host_name(), start);
}

/// A word of an arrival, which has no spaces and is never empty.
static std::string word_of(const std::string& text) { return text.empty() ? "-" : text; }

/// What word_of() made.
static std::string text_of(std::string_view word) { return word == "-" ? std::string() : std::string(word); }

Reach own_reach(const World& world) {
  if (!world.interface.empty()) return {};
  const OutwardInterface other = outward_interface();
  return {
      .address = own_address_towards(world.master_addr), .interface = other.name, .interface_address = other.address};
}

Meeting::Meeting(const World& world, Rendezvous& rendezvous, Clock::duration patience, Recorder& recorder,
                 std::string place, const Reach& reach)
    : world_(world),
      rendezvous_(rendezvous),
      patience_(patience),
      recorder_(recorder),
      place_(std::move(place)),
      own_(fmt::format("{} {} {} {} {} {} {} {}", world.size, host_name(), random_token(), place_, world.local_rank,
                       word_of(reach.address), word_of(reach.interface), word_of(reach.interface_address))) {}

World Meeting::arrive() {
  join_round();
  require_own_job();
  require_to_be_the_one();  // or the one who was here before would not learn of us, having seen all come
  rendezvous_.set(meeting_key("arrived", world_.rank), own_);
  std::vector<Arrival> ranks;
  wait_for_all("arrived", [&](int rank, const std::string& text) {
    ranks.push_back(read(text));
    compare(rank, ranks.back());
  });
  require_to_be_the_one();
  require_reachable(ranks);
  return world_.node_known ? world_ : placed(ranks);
}

/// Debian gives a host's own name to 127.0.1.1 in /etc/hosts. Rank 0's host then reaches the meeting point, which is its own, by
/// an address that leads every other host to itself; they meet, and would wait for each other's connections.
void Meeting::require_reachable(const std::vector<Arrival>& ranks) {
  const auto machine = [](const Arrival& one) { return one.place.substr(one.place.find('/') + 1); };
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& [size, host, place, local, reach] = ranks[rank];
    if (!is_loopback(reach.address)) continue;
    const auto far =
        std::ranges::find_if(ranks, [&](const Arrival& one) { return machine(one) != machine(ranks[rank]); });
    if (far == ranks.end()) return;
    const std::string interface = reach.interface.empty() ? "the interface to them" : reach.interface;
    const std::string address = reach.interface_address.empty() ? "its address" : reach.interface_address;
    leave(CollectiveError(
        fmt::format(
            "rank {} on {} cannot be reached from rank {} on {}: MASTER_ADDR={} leads to {} on {}, which is every "
            "host's own",
            rank, host, far - ranks.begin(), far->host, world_.master_addr, reach.address, host),
        fmt::format("take the name {0} off the line of 127.0.1.1 (or 127.0.0.1) in {1}'s /etc/hosts; or set "
                    "GLOO_SOCKET_IFNAME={2} on {1}; or MASTER_ADDR={3} on all hosts, where that is rank 0's host",
                    world_.master_addr, host, interface, address)));
  }
}

/// Ranks may have been dealt to machines one after the other or in turn, and unevenly. Those that say the same place are of one
/// node; of several nodes on one machine each has one of each local rank.
World Meeting::placed(const std::vector<Arrival>& ranks) {
  std::vector<std::pair<std::string, std::set<int>>> nodes;  // where, and which local ranks
  World out = world_;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& [size, host, place, local, reach] = ranks[rank];
    auto node =
        std::ranges::find_if(nodes, [&](const auto& one) { return one.first == place && !one.second.contains(local); });
    if (node == nodes.end()) node = nodes.insert(nodes.end(), {place, {}});
    node->second.insert(local);
    if (static_cast<int>(rank) == world_.rank) out.node = static_cast<int>(node - nodes.begin());
  }
  out.num_nodes = static_cast<int>(nodes.size());
  out.local_size = static_cast<int>(nodes.at(static_cast<size_t>(out.node)).second.size());
  out.node_known = true;
  for (const auto& [place, locals] : nodes) {  // all ranks look at all, so that none waits for those who refuse
    if (*locals.rbegin() == std::ssize(locals) - 1) continue;
    leave(
        CollectiveError(fmt::format("{} ranks came from {}, and one of them is local rank {} ({})", locals.size(),
                                    place.substr(0, place.find('/')), *locals.rbegin(), world_.source),
                        "give each rank LOCAL_RANK and LOCAL_WORLD_SIZE of its own host, beside RANK and WORLD_SIZE"));
  }
  return out;
}

/// A meeting point that a launcher hosts may be older than this round of the job: rank 0 says which one it is.
void Meeting::join_round() {
  const Deadline deadline(patience_);
  recorder_.enter_phase(Phase::kStart, waits_for(0));
  for (Clock::duration pause = kSoonest; !rendezvous_.joined(); pause = std::min(2 * pause, kLatest)) {
    if (deadline.passed())
      throw absent(fmt::format("rank 0 did not come to {}:{}", world_.master_addr, world_.master_port));
    std::this_thread::sleep_for(pause);
  }
}

/// Two jobs have chosen one port, and this one's ranks have come to the other's meeting: it goes on without having seen them.
void Meeting::require_own_job() {
  const Deadline deadline(patience_);
  std::optional<std::string> opened = rendezvous_.look(kOpened);
  if (world_.rank == 0 && !opened) return rendezvous_.set(kOpened, MeetingOwner::own(world_.job).text());
  for (Clock::duration pause = kSoonest; !opened; pause = std::min(2 * pause, kLatest)) {
    if (deadline.passed())
      throw absent(fmt::format("rank 0 did not come to {}:{}", world_.master_addr, world_.master_port));
    std::this_thread::sleep_for(pause);
    opened = rendezvous_.look(kOpened);
  }
  const MeetingOwner owner = MeetingOwner::read(*opened);
  if (owner.job.empty() || world_.job.empty() || owner.job == world_.job) return;
  throw CollectiveError(fmt::format("rank {} of {} ({}): another job meets at {}:{}: {}", world_.rank, world_.size,
                                    world_.job, world_.master_addr, world_.master_port, owner.phrase()),
                        "give each job a MASTER_PORT of its own; the other goes on");
}

std::string Meeting::waits_for(int rank) const {
  return fmt::format("{}{}:{}, rank {} of {} {}{}", kMeeting, world_.master_addr, world_.master_port, world_.rank,
                     world_.size, kWaitsForRank, rank);
}

void Meeting::wait_for_all(std::string_view word, const std::function<void(int, const std::string&)>& look) {
  const Deadline deadline(patience_);
  std::vector<std::string> missing;
  for (int r = 0; r < world_.size; ++r) {
    recorder_.enter_phase(Phase::kStart, waits_for(r));
    if (const auto text = wait_for(meeting_key(word, r), deadline)) {
      look(r, *text);
    } else {
      missing.push_back(std::to_string(r));
    }
  }
  if (!missing.empty()) refuse(missing);
}

std::optional<std::string> Meeting::wait_for(const std::string& key, const Deadline& deadline) {
  for (Clock::duration pause = kSoonest;; pause = std::min(2 * pause, kLatest)) {
    if (auto text = rendezvous_.look(key)) return text;
    if (const auto told = rendezvous_.look(kQuarrel)) leave(quarrel(*told));
    require_to_be_the_one();
    if (deadline.passed()) return std::nullopt;
    std::this_thread::sleep_for(pause);
  }
}

/// "4 hosta 3f… hosta/9c… 1 10.0.0.7 eth0 10.0.0.7": of how many ranks it is one, where it runs, what no other process is called,
/// its machine, which it is there, and how others reach it.
Meeting::Arrival Meeting::read(const std::string& text) {
  const auto words = split(text, ' ');
  Arrival out;
  if (words.size() != 8) return out;
  std::from_chars(words[0].data(), words[0].data() + words[0].size(), out.size);
  out.host = words[1];
  out.place = words[3];
  std::from_chars(words[4].data(), words[4].data() + words[4].size(), out.local_rank);
  out.reach = {.address = text_of(words[5]), .interface = text_of(words[6]), .interface_address = text_of(words[7])};
  return out;
}

void Meeting::compare(int rank, const Arrival& arrival) {
  if (arrival.size == 0 || arrival.size == world_.size) return;
  tell(fmt::format("rank {} on {} was started as one of {} ranks, rank {} on {} as one of {}", rank, arrival.host,
                   arrival.size, world_.rank, host_name(), world_.size));
}

void Meeting::require_to_be_the_one() {
  const auto text = rendezvous_.look(meeting_key("arrived", world_.rank));
  if (!text || *text == own_) return;
  const auto [size, host, place, local, reach] = read(*text);
  tell(fmt::format("a process on {} and one on {} are both rank {}{}", host, host_name(), world_.rank,
                   size == world_.size ? "" : fmt::format(", of {} and of {} ranks", size, world_.size)));
}

void Meeting::tell(const std::string& text) {
  rendezvous_.set(kQuarrel, text);
  leave(quarrel(text));
}

CollectiveError Meeting::quarrel(const std::string& text) const {
  return CollectiveError(
      fmt::format("{} (meeting at {}:{})", text, world_.master_addr, world_.master_port),
      "give every host the same NNODES (WORLD_SIZE) and NPROC_PER_NODE, and each a NODE_RANK (RANK) of "
      "its own; two jobs need two MASTER_PORTs");
}

void Meeting::leave(const CollectiveError& why) {
  const auto all_leave = [&] {
    for (int rank = 0; rank < world_.size; ++rank) {
      if (!rendezvous_.look(meeting_key(kLeaves, rank))) return false;
    }
    return true;
  };
  try {
    rendezvous_.set(meeting_key(kLeaves, world_.rank), own_);
    const Deadline at_least(kStaysAtLeast), at_most(kStaysAtMost);
    while (world_.rank == 0 && !at_most.passed() && !(at_least.passed() && all_leave())) {
      std::this_thread::sleep_for(kSoonest);
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the meeting point is gone, and nobody reads there
  }
  throw why;
}

void Meeting::refuse(const std::vector<std::string>& missing) {
  leave(absent(fmt::format("{} of {} ranks came to {}:{}; missing: rank{} {}",
                           world_.size - static_cast<int>(missing.size()), world_.size, world_.master_addr,
                           world_.master_port, missing.size() == 1 ? "" : "s", join(missing, ", "))));
}

CollectiveError Meeting::absent(const std::string& text) const {
  return CollectiveError(
      fmt::format("rank {} of {} ({}), within {}: {}", world_.rank, world_.size, world_.source,
                  format_duration(std::chrono::duration<double>(patience_).count()), text),
      "look at the output of the missing ranks; all must be started, with the same MASTER_ADDR and MASTER_PORT");
}

}  // namespace lockstep
