#include "lockstep/guard/tree_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(500);
constexpr auto kSilence = std::chrono::seconds(5);  // of a child, after which its node is lost
constexpr auto kAnswer = std::chrono::seconds(10);  // for a parent to answer a greeting: longer than it waits for us
constexpr auto kLonely = std::chrono::seconds(15);  // without having met the parent, until people are told
constexpr auto kFirstPause = std::chrono::milliseconds(100);
constexpr auto kLongestPause = std::chrono::seconds(5);

/// Also of a message that holds bytes which are no text.
std::string text_of(const Json& message) { return message.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::vector<int> tree_children(int node, int num_nodes) {
  std::vector<int> children;
  for (int i = 1; i <= kTreeArity; ++i) {
    if (const int64_t child = int64_t{node} * kTreeArity + i; child < num_nodes) {
      children.push_back(static_cast<int>(child));
    }
  }
  return children;
}

bool TreeLink::connect_parent(const std::string& host, int port) {
  constexpr int kLastPort = 65535;
  if (port < 1 || port > kLastPort || !key_) return false;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  ParentAddress address{.text = fmt::format("{}:{}", host, port)};
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress& place = address.all.emplace_back();
    std::memcpy(&place.address, one->ai_addr, one->ai_addrlen);
    place.length = one->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return connect_parent(std::move(address));
}

bool TreeLink::connect_parent(ParentAddress address) {
  if (address.all.empty() || !key_) return false;
  parent_address_ = std::move(address);
  looked_for_ = Clock::now();
  pause_ = kFirstPause;
  begin_to_greet();
  return true;
}

void TreeLink::begin_to_greet() {
  parent_.reset();
  begun_ = Clock::now();
  again_ = begun_ + pause_;
  pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
  const SocketAddress& place = parent_address_.all.at(next_address_++ % parent_address_.all.size());
  const int fd = ::socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&place.address), place.length) != 0 && errno != EINPROGRESS) {
    ::close(fd);
    return;
  }
  const int yes = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  parent_ = std::make_unique<FrameStream>(fd);
  greeting_.emplace(*key_, TreeEdge{.child = node_, .parent = tree_parent(node_)});
  parent_->send(greeting_->hello());
}

/// One try after the other: strangers may crowd the parent's door, or cut the connection.
void TreeLink::greet_parent(TreeNews& news) {
  if (parent_address_.all.empty() || parent_met_) return;
  const auto now = Clock::now();
  if (parent_ != nullptr && parent_->open()) {
    const Greeted greeted = greeting_->hear(*parent_);
    if (greeted == Greeted::kMet) {
      parent_heard_ = now;
      parent_met_ = news.parent_met = true;
      greeting_.reset();
      return;
    }
    if (greeted == Greeted::kGoing && now - begun_ < kAnswer) return;
    parent_->close();
    tell_of_parent(greeted, news);
  }
  if (now - looked_for_ > kLonely) tell_of_parent(Greeted::kGoing, news);
  if (now >= again_) begin_to_greet();
}

/// Once each: why this node's ranks are watched by its own agent alone.
void TreeLink::tell_of_parent(Greeted greeted, TreeNews& news) {
  const std::string who = fmt::format("the agent of node {}, at {},", tree_parent(node_), parent_address_.text);
  if (greeted == Greeted::kWrongKey && !std::exchange(told_key_, true)) {
    news.notices.push_back(fmt::format(
        "{} and that of node {} do not know the same key: LOCKSTEP_JOB_SECRET must be the same on all nodes; until it "
        "is, node {} judges its ranks alone",
        who, node_, node_));
  } else if (greeted == Greeted::kGoing && !told_key_ && !std::exchange(told_silence_, true)) {
    news.notices.push_back(fmt::format(
        "{} has not answered the greeting of node {} for {} s; look at the network between the nodes; until it does, "
        "node {} judges its ranks alone",
        who, node_, std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - looked_for_).count(), node_));
  }
}

std::vector<int> TreeLink::descriptors() const {
  std::vector<int> all;
  if (key_) all = door_.descriptors();  // who knocks before waits: nobody could be let in
  for (const auto& [node, child] : children_) all.push_back(child.stream.fd());
  if (parent_ != nullptr) all.push_back(parent_->fd());
  all.erase(std::remove_if(all.begin(), all.end(), [](int fd) { return fd < 0; }), all.end());
  return all;
}

void TreeLink::hear_strangers(TreeNews& news) {
  if (!key_) return;
  const auto wanted = [this](int node) {
    return node > 0 && node < num_nodes_ && tree_parent(node) == node_ && !children_.contains(node);
  };
  for (auto& guest : door_.let_in(*key_, wanted, news.notices)) {
    children_.emplace(guest.node, Child{.stream = std::move(guest.stream)});
  }
}

void TreeLink::hear_child(int node, Child& child, TreeNews& news) {
  child.stream.pump();
  while (auto message = child.stream.receive()) {
    if (child.left) continue;
    child.spoke = true;
    child.heard = Clock::now();
    const std::string kind = message_kind(*message);
    if (kind == "census") {
      try {
        child.census = census_from_json(message->value("census", Json()));
        child.census_at = child.heard;
        child.whole = message->contains("whole") && (*message)["whole"] == true;
      } catch (const std::exception&) {  // garbage from one that knows the key: not heard any more
        child.stream.close();
        break;
      }
    } else if (kind == "bye") {
      child.stream.close();
      child.left = true;
    } else if (kind != "beat") {
      news.from_children.push_back(text_of(*message));
    }
  }
  if (child.left || child.lost) return;
  child.lost = !child.stream.open() || Clock::now() - child.heard > kSilence;
  if (child.stream.forged()) {
    news.notices.push_back(fmt::format(
        "what came over the connection of node {}'s agent was not what that agent said: it is not heard any more",
        node));
  }
}

void TreeLink::hear_parent(TreeNews& news) {
  if (!parent_met_) return greet_parent(news);
  const bool was_open = parent_->open();
  parent_->pump();
  while (auto message = parent_->receive()) {
    parent_heard_ = Clock::now();
    const std::string kind = message_kind(*message);
    if (kind == "bye") {
      parent_left_ = true;
    } else if (kind != "beat") {
      news.from_parent.push_back(text_of(*message));
    }
  }
  if (was_open && parent_->forged()) {
    news.notices.push_back(fmt::format(
        "what came over the connection of node {}'s agent was not what that agent said: it is not heard any more",
        tree_parent(node_)));
  }
}

TreeNews TreeLink::pump() {
  TreeNews news;
  hear_strangers(news);
  for (auto& [node, child] : children_) hear_child(node, child, news);
  // Who was let in and left before its first word did not hear the welcome: it comes again.
  std::erase_if(children_, [](const auto& entry) { return entry.second.lost && !entry.second.spoke; });
  hear_parent(news);
  if (Clock::now() - beat_ >= kBeat) {
    beat_ = Clock::now();
    const Json beat = {{"kind", "beat"}};
    send_up(beat);
    send_down(beat);
  }
  return news;
}

void TreeLink::send_up(const Json& message) {
  if (parent_met_) parent_->send(message);
}

void TreeLink::send_down(const Json& message) {
  for (auto& [node, child] : children_) child.stream.send(message);
}

void TreeLink::send_census(const Census& census, bool whole) {
  send_up({{"kind", "census"}, {"whole", whole}, {"census", to_json(census)}});
}

Census TreeLink::children_census() const {
  Census all;
  for (const auto& [node, child] : children_) {
    if (!child.lost) {
      all.add(child.census);
      continue;
    }
    for (RankClass one : child.census.classes) {
      one.sample.unreachable = true;
      Census lost;
      lost.classes.push_back(std::move(one));
      all.add(std::move(lost));
    }
  }
  return all;
}

bool TreeLink::children_fresh(Clock::duration age) const {
  const auto expected = tree_children(node_, num_nodes_);
  return std::all_of(expected.begin(), expected.end(), [&](int node) {
    const auto at = children_.find(node);
    if (at == children_.end()) return false;
    const Child& child = at->second;
    return child.lost || (child.whole && (child.left || Clock::now() - child.census_at <= age));
  });
}

bool TreeLink::children_left() const {
  return std::all_of(children_.begin(), children_.end(),
                     [](const auto& entry) { return entry.second.left || entry.second.lost; });
}

void TreeLink::say_goodbye() {
  const Json goodbye = {{"kind", "bye"}};
  send_up(goodbye);
  send_down(goodbye);
}

std::optional<double> TreeLink::parent_silent_seconds() const {
  if (!parent_met_ || parent_left_) return std::nullopt;
  if (!parent_->open()) return 1e9;
  return std::chrono::duration<double>(Clock::now() - parent_heard_).count();
}

}  // namespace lockstep
