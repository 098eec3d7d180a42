#include "lockstep/guard/tree_door.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr auto kGreeting = std::chrono::seconds(2);  // for a stranger to show that it knows the key
constexpr int kKnocks = 256;                         // at one turn
constexpr int kBacklog = 512;

int listen_anywhere(int& port) {
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool six = fd >= 0;
  const int listener = six ? fd : ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_storage address{};
  socklen_t length = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  address.ss_family = six ? AF_INET6 : AF_INET;
  if (six) {
    const int no = 0;
    ::setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr = in6addr_any;
  }
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener, kBacklog) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const std::string why = std::strerror(errno);
    if (listener >= 0) ::close(listener);
    throw Error(ExitCode::kInternal, fmt::format("listening for the agents of other nodes: {}", why));
  }
  port = ntohs(six ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  return listener;
}

/// Of IPv6 the network: its machines choose the rest as they like. IPv4 as IPv6 maps it.
in6_addr origin_of(const sockaddr_storage& peer) {
  in6_addr origin{};
  if (peer.ss_family == AF_INET) {
    origin.s6_addr[10] = origin.s6_addr[11] = 0xff;
    std::memcpy(origin.s6_addr + 12, &reinterpret_cast<const sockaddr_in*>(&peer)->sin_addr, 4);
  } else if (peer.ss_family == AF_INET6) {
    origin = reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_addr;
    if (!IN6_IS_ADDR_V4MAPPED(&origin)) std::memset(origin.s6_addr + 8, 0, 8);
  }
  return origin;
}

std::string text_of(const in6_addr& origin) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IN6_IS_ADDR_V4MAPPED(&origin)) {
    ::inet_ntop(AF_INET, origin.s6_addr + 12, text.data(), text.size());
  } else {
    ::inet_ntop(AF_INET6, &origin, text.data(), text.size());
  }
  return text.data();
}

bool same_origin(const in6_addr& a, const in6_addr& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TreeDoor::TreeDoor(int node) : node_(node), listener_(listen_anywhere(port_)) {}

TreeDoor::~TreeDoor() { ::close(listener_); }

std::vector<int> TreeDoor::descriptors() const {
  std::vector<int> all{listener_};
  for (const auto& stranger : strangers_) all.push_back(stranger.stream.fd());
  return all;
}

/// For one more of `address`: an address that is over its share makes room itself, and where all are within theirs, the
/// one that has most. Who has said nothing goes first, and of those the oldest.
void TreeDoor::make_room(const in6_addr& address) {
  const auto of = [&](const in6_addr& origin) {
    return std::count_if(strangers_.begin(), strangers_.end(),
                         [&](const Stranger& one) { return same_origin(one.address, origin); });
  };
  in6_addr crowd = address;
  if (of(address) < static_cast<std::ptrdiff_t>(kMaxOfAddress)) {
    if (strangers_.size() < kMaxStrangers) return;
    for (const auto& one : strangers_) {
      if (of(one.address) > of(crowd)) crowd = one.address;
    }
  }
  const auto first = [&](bool silent) {
    return std::find_if(strangers_.begin(), strangers_.end(), [&](const Stranger& one) {
      return same_origin(one.address, crowd) && !(silent && one.greeting.child());
    });
  };
  auto leaving = first(/*silent=*/true);
  if (leaving == strangers_.end()) leaving = first(/*silent=*/false);
  if (leaving == strangers_.end()) leaving = strangers_.begin();
  strangers_.erase(leaving);
}

void TreeDoor::answer_knocks(const MacKey& key, const Wanted& wanted) {
  for (int i = 0; i < kKnocks; ++i) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    const int fd = ::accept4(listener_, reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    const int yes = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    Stranger stranger{.stream = FrameStream(fd), .address = origin_of(peer), .greeting = ParentGreeting(node_)};
    make_room(stranger.address);
    // Heard at once: who has said hello is not the first to go when others knock after it.
    if (stranger.greeting.hear(stranger.stream, key, wanted) == Greeted::kGoing) {
      strangers_.push_back(std::move(stranger));
    }
  }
}

std::vector<TreeDoor::Guest> TreeDoor::let_in(const MacKey& key, const Wanted& wanted,
                                              std::vector<std::string>& notices) {
  std::vector<Guest> guests;
  const Wanted still_wanted = [&](int node) {
    return wanted(node) &&
           std::none_of(guests.begin(), guests.end(), [&](const Guest& one) { return one.node == node; });
  };
  answer_knocks(key, still_wanted);
  for (auto at = strangers_.begin(); at != strangers_.end();) {
    const Greeted now = at->greeting.hear(at->stream, key, still_wanted);
    const int node = at->greeting.child().value_or(0);
    if (now == Greeted::kGoing && Clock::now() - at->came < kGreeting) {
      ++at;
      continue;
    }
    if (now == Greeted::kMet) guests.push_back({node, std::move(at->stream)});
    if (now == Greeted::kWrongKey && told_.insert(node).second) {
      notices.push_back(
          fmt::format("who calls itself the agent of node {}, at {}, does not know this job's key and is not let in; "
                      "LOCKSTEP_JOB_SECRET must be the same on all nodes",
                      node, text_of(at->address)));
    }
    at = strangers_.erase(at);  // hung up on, if it was not let in
  }
  return guests;
}

}  // namespace lockstep
