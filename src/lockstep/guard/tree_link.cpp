#include "lockstep/guard/tree_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(500);
constexpr auto kSilence = std::chrono::seconds(5);   // of a child, after which its node is lost
constexpr auto kGreeting = std::chrono::seconds(2);  // for a stranger to show the token
constexpr size_t kMaxStrangers = 64;

std::string kind_of(const Json& message) {
  return message.is_object() && message.contains("kind") && message["kind"].is_string()
             ? message["kind"].get<std::string>()
             : std::string();
}

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
  constexpr int kBacklog = 64;
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

TreeLink::TreeLink(std::string token, int node, int num_nodes)
    : token_(std::move(token)), node_(node), num_nodes_(num_nodes) {
  listener_ = listen_anywhere(port_);
}

TreeLink::~TreeLink() { ::close(listener_); }

bool TreeLink::connect_parent(const std::string& host, int port, const std::string& token) {
  token_ = token;  // the root's: one for the whole job
  constexpr int kLastPort = 65535;
  if (port < 1 || port > kLastPort) return false;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool begun = fd >= 0 && (::connect(fd, found->ai_addr, found->ai_addrlen) == 0 || errno == EINPROGRESS);
  ::freeaddrinfo(found);
  if (!begun) {
    if (fd >= 0) ::close(fd);
    return false;
  }
  const int yes = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  parent_ = std::make_unique<FrameStream>(fd);
  parent_->trust();
  parent_heard_ = Clock::now();
  parent_met_ = true;
  parent_->send({{"kind", "hello"}, {"token", token_}, {"node", node_}});
  return true;
}

std::vector<int> TreeLink::descriptors() const {
  std::vector<int> all{listener_};
  for (const auto& stranger : strangers_) all.push_back(stranger.stream.fd());
  for (const auto& [node, child] : children_) all.push_back(child.stream.fd());
  if (parent_ != nullptr) all.push_back(parent_->fd());
  all.erase(std::remove_if(all.begin(), all.end(), [](int fd) { return fd < 0; }), all.end());
  return all;
}

void TreeLink::let_in() {
  while (strangers_.size() < kMaxStrangers) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    const int yes = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    strangers_.push_back({FrameStream(fd)});
  }
}

void TreeLink::hear_strangers() {
  const auto expected = tree_children(node_, num_nodes_);
  std::vector<Stranger> waiting;
  for (auto& stranger : strangers_) {
    stranger.stream.pump();
    const auto hello = stranger.stream.receive();
    if (!hello) {
      if (stranger.stream.open() && Clock::now() - stranger.came < kGreeting) waiting.push_back(std::move(stranger));
      continue;
    }
    const bool whole = kind_of(*hello) == "hello" && hello->contains("token") && (*hello)["token"].is_string() &&
                       hello->contains("node") && (*hello)["node"].is_number_integer() &&
                       same_token((*hello)["token"].get<std::string>(), token_);
    const int64_t node = whole ? (*hello)["node"].get<int64_t>() : -1;
    const bool mine = std::find(expected.begin(), expected.end(), node) != expected.end();
    if (!mine || children_.contains(static_cast<int>(node))) continue;  // closes
    stranger.stream.trust();
    children_.emplace(static_cast<int>(node), Child{.stream = std::move(stranger.stream)});
  }
  strangers_ = std::move(waiting);
}

void TreeLink::hear_child(Child& child, TreeNews& news) {
  child.stream.pump();
  while (auto message = child.stream.receive()) {
    if (child.left) continue;
    child.heard = Clock::now();
    const std::string kind = kind_of(*message);
    if (kind == "census") {
      try {
        child.census = census_from_json(message->value("census", Json()));
        child.census_at = child.heard;
        child.whole = message->contains("whole") && (*message)["whole"] == true;
      } catch (const std::exception&) {  // garbage from one that has the token: not heard any more
        child.stream.close();
        break;
      }
    } else if (kind == "bye") {
      child.stream.close();
      child.left = true;
    } else if (kind != "beat") {
      news.from_children.push_back(message->dump());
    }
  }
  if (!child.left && (!child.stream.open() || Clock::now() - child.heard > kSilence)) child.lost = true;
}

void TreeLink::hear_parent(TreeNews& news) {
  if (parent_ == nullptr) return;
  parent_->pump();
  while (auto message = parent_->receive()) {
    parent_heard_ = Clock::now();
    const std::string kind = kind_of(*message);
    if (kind == "bye") {
      parent_left_ = true;
    } else if (kind != "beat") {
      news.from_parent.push_back(message->dump());
    }
  }
}

TreeNews TreeLink::pump() {
  TreeNews news;
  let_in();
  hear_strangers();
  for (auto& [node, child] : children_) hear_child(child, news);
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
  if (parent_ != nullptr) parent_->send(message);
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
