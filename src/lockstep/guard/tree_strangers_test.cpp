// Who does not know the job's key, and what he can do: knock, listen, sit between, and be silent in great numbers.
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <random>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/guard/test_tree.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

/// A peer that speaks bytes, from 127.0.0.`machine`.
class RawPeer {
 public:
  explicit RawPeer(int port, int machine = 1) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(static_cast<uint32_t>(0x7f000000 + machine));
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~RawPeer() { ::close(fd_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  void say(const Json& message) const {
    std::string body;
    Json::to_cbor(message, body);
    say_framed(body);
  }
  void say_framed(const std::string& body) const {
    const auto length = static_cast<uint32_t>(body.size());
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    say_bytes(bytes + body);
  }
  void say_bytes(const std::string& bytes) const { (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// The other side has hung up.
  bool refused() const {
    std::array<char, 4096> bytes;  // what it has said before
    ssize_t got = 0;
    while ((got = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) {
    }
    return got == 0 || errno != EAGAIN;
  }

  int fd() const { return fd_; }

 private:
  int fd_;
};

/// A child that knows `key` and then says what a test wants, sealed.
class KeyPeer {
 public:
  KeyPeer(int port, int node, const MacKey& key) : greeting_(key, {.child = node, .parent = tree_parent(node)}) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    stream_ = std::make_unique<FrameStream>(fd);
    stream_->send(greeting_.hello());
  }
  Greeted meet(TreeLink& parent, TreeNews& news) {
    Greeted now = Greeted::kGoing;
    pump_until(
        {&parent},
        [&](size_t, const TreeNews& heard) {
          news.notices.insert(news.notices.end(), heard.notices.begin(), heard.notices.end());
          return true;
        },
        [&] { return (now = greeting_.hear(*stream_)) != Greeted::kGoing; });
    return now;
  }
  FrameStream& stream() { return *stream_; }

 private:
  std::unique_ptr<FrameStream> stream_;
  ChildGreeting greeting_;
};

/// Sits between two agents, writes down what they say, and may change what the parent says.
class Between {
 public:
  explicit Between(int port) : port_(port), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    own_port_ = ntohs(address.sin_port);
  }
  ~Between() {
    ::close(listener_);
    if (child_ >= 0) ::close(child_);
  }
  Between(const Between&) = delete;
  Between& operator=(const Between&) = delete;

  int port() const { return own_port_; }
  void pass_on() {
    pollfd knock{listener_, POLLIN, 0};
    if (child_ < 0 && ::poll(&knock, 1, 0) > 0) {
      child_ = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      parent_ = std::make_unique<RawPeer>(port_);
    }
    if (child_ < 0) return;
    move(child_, parent_->fd(), up, /*changes=*/false);
    move(parent_->fd(), child_, down, changes_down);
  }
  std::string up, down;
  bool changes_down = false;

 private:
  static void move(int from, int to, std::string& record, bool changes) {
    std::array<char, 4096> bytes;
    const ssize_t got = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got <= 0) return;
    const auto size = static_cast<size_t>(got);
    record.append(bytes.data(), size);
    if (changes) bytes[size / 2] = static_cast<char>(bytes[size / 2] ^ 1);
    (void)::send(to, bytes.data(), size, MSG_NOSIGNAL);
  }
  int port_, listener_, own_port_ = 0, child_ = -1;
  std::unique_ptr<RawPeer> parent_;
};

TEST(TreeStrangers, HearsOnlyItsChildrenAndOnlyWithTheKey) {
  TreeLink parent(0, 3);
  share_key({&parent});
  const std::string nonce(32, 'a');
  const auto refused = [&](const std::vector<Json>& words) {
    const RawPeer peer(parent.port());
    for (const auto& word : words) peer.say(word);
    return pump_until({&parent}, [&] { return peer.refused(); }) && parent.descriptors().size() == 1;
  };
  const Json hello = {{"kind", "hello"}, {"node", 1}, {"nonce", nonce}};
  const auto as_node = [&](const Json& node) { return Json({{"kind", "hello"}, {"node", node}, {"nonce", nonce}}); };
  // The greeting of before, with a token that it had to be told.
  EXPECT_TRUE(refused({{{"kind", "hello"}, {"token", "token"}, {"node", 1}}}));
  EXPECT_TRUE(refused({{{"kind", "hello"}, {"node", 1}}}));
  EXPECT_TRUE(refused({{{"kind", "hello"}, {"node", 1}, {"nonce", 7}}}));
  EXPECT_TRUE(refused({{{"kind", "hello"}, {"node", 1}, {"nonce", nonce + "a"}}}));
  EXPECT_TRUE(refused({{{"kind", "hello"}, {"node", 1}, {"nonce", std::string(32, ' ')}}}));
  for (const Json& node :
       {Json("1"), Json(0), Json(9), Json(-1), Json((int64_t{1} << 32) + 1), Json(UINT64_MAX), Json(1.0)}) {
    EXPECT_TRUE(refused({as_node(node)})) << node;
  }
  EXPECT_TRUE(refused({hello, hello}));
  EXPECT_TRUE(refused({hello, {{"kind", "proof"}}}));
  EXPECT_TRUE(refused({hello, {{"kind", "proof"}, {"mac", ""}}}));
  EXPECT_TRUE(refused({hello, {{"kind", "proof"}, {"mac", std::string(64, '0')}}}));
  EXPECT_TRUE(refused({hello, {{"kind", "suspect"}}}));
  EXPECT_TRUE(refused({{{"kind", "proof"}, {"mac", std::string(64, '0')}}}));
  EXPECT_TRUE(refused({{{"kind", "census"}, {"node", 1}}}));
  EXPECT_TRUE(refused({Json::array()}));
  EXPECT_TRUE(refused({nullptr}));
  TreeNews news;
  KeyPeer first(parent.port(), 1, kKey);
  EXPECT_EQ(first.meet(parent, news), Greeted::kMet);
  EXPECT_EQ(parent.descriptors().size(), 2U);
  KeyPeer second(parent.port(), 1, kKey);  // the place is taken
  EXPECT_EQ(second.meet(parent, news), Greeted::kNonsense);
  KeyPeer third(parent.port(), 9, kKey);  // another's child
  EXPECT_EQ(third.meet(parent, news), Greeted::kNonsense);
  EXPECT_TRUE(first.stream().open());
  EXPECT_EQ(parent.descriptors().size(), 2U);
}

// Without the key: a forged report of a rank's death, said in every way that needs no key, ends nothing.
TEST(TreeStrangers, AForgedReportIsNotHeard) {
  TreeLink parent(0, 2), child(1, 2);
  share_key({&parent, &child});
  Census forged = two_ranks(2);
  forged.classes[0].sample.unreachable = true;
  const Json report = {{"kind", "census"}, {"whole", true}, {"census", to_json(forged)}};
  TreeNews news;
  KeyPeer guesser(parent.port(), 1, tree_key("", "salt"));  // the salt stands at the meeting point
  guesser.stream().send(report);
  EXPECT_NE(guesser.meet(parent, news), Greeted::kMet);
  KeyPeer stranger(parent.port(), 1, tree_key("another secret", "salt"));
  EXPECT_EQ(stranger.meet(parent, news), Greeted::kWrongKey);
  ASSERT_EQ(news.notices.size(), 1U);
  EXPECT_EQ(news.notices[0],
            "who calls itself the agent of node 1, at 127.0.0.1, does not know this job's key and is not let in; "
            "LOCKSTEP_JOB_SECRET must be the same on all nodes");
  const RawPeer shouter(parent.port());
  shouter.say(report);
  for (int i = 0; i < 20; ++i) parent.pump();
  EXPECT_TRUE(parent.children_census().classes.empty());
  // Its own place is still free.
  ASSERT_TRUE(child.connect_parent("127.0.0.1", parent.port()));
  ASSERT_TRUE(
      pump_until({&parent, &child}, [&] { return parent.descriptors().size() == 2 && child.parent_silent_seconds(); }));
  child.send_census(two_ranks(2), true);
  ASSERT_TRUE(pump_until({&parent, &child}, [&] { return parent.children_fresh(seconds(10)); }));
  EXPECT_EQ(judge(parent.children_census()).verdict, Verdict::kFine);
}

TEST(TreeStrangers, WhatWasOverheardIsOfNoUse) {
  TreeLink parent(0, 2), child(1, 2);
  share_key({&parent, &child});
  Between between(parent.port());
  ASSERT_TRUE(child.connect_parent("127.0.0.1", between.port()));
  const auto passing = [&](const std::function<bool()>& done) {
    return pump_until({&parent, &child}, [&] {
      between.pass_on();
      return done();
    });
  };
  ASSERT_TRUE(passing([&] { return child.parent_silent_seconds().has_value(); }));
  child.send_census(two_ranks(2), true);
  ASSERT_TRUE(passing([&] { return parent.children_fresh(seconds(10)); }));
  for (const auto* said : {&between.up, &between.down}) {
    EXPECT_FALSE(said->empty());
    EXPECT_EQ(said->find("secret"), std::string::npos);
  }
  // All that the child has said, to the same agent in its next life: its nonce is another.
  TreeLink again(0, 2);
  share_key({&again});
  const RawPeer replay(again.port());
  replay.say_bytes(between.up);
  EXPECT_TRUE(pump_until({&again}, [&] { return replay.refused(); }));
  EXPECT_TRUE(again.children_census().classes.empty());
  // And to the child, what the parent says is what the parent has said.
  between.changes_down = true;
  parent.send_down({{"kind", "end"}, {"exit_code", 6}});
  std::string notice;
  bool obeyed = false;
  const auto hear = [&](size_t, const TreeNews& news) {
    between.pass_on();
    obeyed = obeyed || !news.from_parent.empty();
    if (!news.notices.empty()) notice = news.notices[0];
    return true;
  };
  ASSERT_TRUE(pump_until({&parent, &child}, hear, [&] { return !notice.empty(); }));
  EXPECT_EQ(notice,
            "what came over the connection of node 0's agent was not what that agent said: it is not heard any more");
  EXPECT_FALSE(obeyed);
}

// Whoever answers in the parent's place must know the key as well.
TEST(TreeStrangers, AFalseParentIsNotObeyed) {
  TreeLink impostor(0, 2), child(1, 2);
  impostor.set_key(tree_key("another secret", "salt"));
  child.set_key(kKey);
  ASSERT_TRUE(child.connect_parent("127.0.0.1", impostor.port()));
  std::vector<std::string> told;
  const auto hear = [&](size_t who, const TreeNews& news) {
    impostor.send_down({{"kind", "end"}});
    if (who == 1) told.insert(told.end(), news.notices.begin(), news.notices.end());
    EXPECT_TRUE(news.from_parent.empty());
    return true;
  };
  ASSERT_TRUE(pump_until({&impostor, &child}, hear, [&] { return !told.empty(); }));
  EXPECT_NE(told[0].find("do not know the same key: LOCKSTEP_JOB_SECRET must be the same on all nodes"),
            std::string::npos);
  EXPECT_EQ(child.parent_silent_seconds(), std::nullopt);
  // Also one that says yes to everything.
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  FrameStream theirs(fds[0]), ours(fds[1]);
  ChildGreeting greeting(kKey, {.child = 1, .parent = 0});
  theirs.send({{"kind", "challenge"}, {"nonce", std::string(32, '0')}});
  theirs.send({{"kind", "welcome"}, {"mac", std::string(64, '0')}});
  EXPECT_EQ(greeting.hear(ours), Greeted::kWrongKey);
}

TEST(TreeStrangers, SilentStrangersAreSentAwayAndKeepNobodyOut) {
  TreeLink parent(0, 2), child(1, 2);
  share_key({&parent, &child});
  std::vector<std::unique_ptr<RawPeer>> silent;
  // More than there is room for, from the very address of the child, before and after it knocks.
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<RawPeer>(parent.port()));
  for (const auto& peer : silent) peer->say_bytes("\x01");  // the beginning of a length
  ASSERT_TRUE(child.connect_parent("127.0.0.1", parent.port()));
  for (int i = 0; i < 100; ++i) silent.push_back(std::make_unique<RawPeer>(parent.port()));
  parent.pump();
  EXPECT_LE(parent.descriptors().size(), 1 + TreeDoor::kMaxOfAddress);
  ASSERT_TRUE(pump_until({&parent, &child}, [&] { return child.parent_silent_seconds().has_value(); }));
  child.send_census(two_ranks(2), true);
  EXPECT_TRUE(pump_until({&parent, &child}, [&] { return parent.children_fresh(seconds(10)); }));
  EXPECT_TRUE(pump_until({&parent, &child}, [&] {
    return std::all_of(silent.begin(), silent.end(), [](const auto& peer) { return peer->refused(); });
  }));
  EXPECT_EQ(parent.descriptors().size(), 2U);
}

TEST(TreeStrangers, ManyAddressesShareABoundAndTheLoudestYields) {
  TreeLink parent(0, 2);
  share_key({&parent});
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (int machine = 1; machine <= 20; ++machine) {
    for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<RawPeer>(parent.port(), machine));
    parent.pump();
  }
  EXPECT_EQ(parent.descriptors().size(), 1 + TreeDoor::kMaxStrangers);
  const RawPeer quiet(parent.port(), 99);
  for (int i = 0; i < 30; ++i) silent.push_back(std::make_unique<RawPeer>(parent.port(), 5));
  parent.pump();
  EXPECT_FALSE(quiet.refused());  // one of an address, while others have several
}

TEST(TreeStrangers, AChildComesAgainUntilItIsHeard) {
  TreeLink child(1, 2);
  share_key({&child});
  auto parent = std::make_unique<TreeLink>(0, 2);  // without the key: it lets nobody in
  const int port = parent->port();
  ASSERT_TRUE(child.connect_parent("127.0.0.1", port));
  for (int i = 0; i < 20; ++i) {
    parent->pump();
    child.pump();
  }
  EXPECT_EQ(child.parent_silent_seconds(), std::nullopt);
  share_key({parent.get()});
  bool met = false;
  const auto hear = [&](size_t, const TreeNews& news) { return met = met || news.parent_met; };
  ASSERT_TRUE(pump_until({parent.get(), &child}, hear, [&] { return met; }));
  EXPECT_LT(child.parent_silent_seconds().value_or(99), 5);
  // A connection that is cut while it is greeted is no loss of a node.
  TreeNews news;
  TreeLink other(0, 2);
  share_key({&other});
  {
    KeyPeer cut(other.port(), 1, kKey);
    EXPECT_EQ(cut.meet(other, news), Greeted::kMet);
  }
  for (int i = 0; i < 20; ++i) other.pump();
  EXPECT_EQ(other.descriptors().size(), 1U);
  KeyPeer again(other.port(), 1, kKey);
  EXPECT_EQ(again.meet(other, news), Greeted::kMet);
}

TEST(TreeStrangers, GarbageFromStrangersAndChildrenHarmsNobody) {
  constexpr uint64_t kSeed = 3;
  fmt::print("seed {}\n", kSeed);
  std::mt19937_64 random(kSeed);
  const Json valid = {{"kind", "census"}, {"whole", true}, {"census", to_json(two_ranks(2))}};
  std::string bytes;
  Json::to_cbor(valid, bytes);
  size_t children = 0;
  for (int round = 0; round < 300; ++round) {
    TreeLink parent(0, 9);
    share_key({&parent});
    std::string body = bytes;
    for (size_t i = 0, flips = 1 + random() % 8; i < flips; ++i)
      body[random() % body.size()] = static_cast<char>(random());
    if (round % 3 == 0) body.resize(random() % body.size());
    if (round % 2 == 0) {  // one that knows the key and says any value
      TreeNews news;
      KeyPeer peer(parent.port(), 1 + round % 8, kKey);
      if (peer.meet(parent, news) == Greeted::kMet) children += 1;
      Json message = parse_cbor_or_discard(body, {.depth = 32});
      peer.stream().send(message.is_discarded() ? Json(body) : message);
      peer.stream().send(valid);
      for (int i = 0; i < 3; ++i) parent.pump();
    } else {
      const RawPeer peer(parent.port());
      if (round % 5 == 0) {
        peer.say_bytes(body);
      } else {
        peer.say_framed(body);
      }
      for (int i = 0; i < 3; ++i) parent.pump();
    }
    EXPECT_LE(judge(parent.children_census()).diagnosis.text().size(), 1'000'000U);
    EXPECT_LE(parent.descriptors().size(), 9U + TreeDoor::kMaxStrangers);
  }
  EXPECT_EQ(children, 150U);
}

}  // namespace
}  // namespace lockstep
