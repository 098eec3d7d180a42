#include "lockstep/guard/tree_link.h"

#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

/// Pumps all of them until `done`, for at most ten seconds.
bool pump_until(const std::vector<TreeLink*>& links, const std::function<bool(size_t, const TreeNews&)>& hear,
                const std::function<bool()>& done) {
  const Deadline deadline(seconds(10));
  while (!deadline.passed()) {
    for (size_t i = 0; i < links.size(); ++i) hear(i, links[i]->pump());
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

bool pump_until(const std::vector<TreeLink*>& links, const std::function<bool()>& done) {
  return pump_until(
      links, [](size_t, const TreeNews&) { return true; }, done);
}

Census two_ranks(int first) {
  std::vector<RankReport> reports;
  for (int rank = first; rank < first + 2; ++rank) {
    RankReport report = running_rank(rank, 4);
    report.node = first / 2;
    add_calls(report, training_calls(1));
    reports.push_back(report);
  }
  return census_of(reports);
}

/// A peer that speaks bytes.
class RawPeer {
 public:
  explicit RawPeer(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
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
    char byte = 0;
    const ssize_t got = ::recv(fd_, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

 private:
  int fd_;
};

TEST(Tree, EveryNodeHasOneParent) {
  for (const int nodes : {1, 2, 9, 10, 1250}) {
    std::vector<int> seen(static_cast<size_t>(nodes));
    for (int node = 0; node < nodes; ++node) {
      for (const int child : tree_children(node, nodes)) {
        EXPECT_EQ(tree_parent(child), node);
        seen[static_cast<size_t>(child)] += 1;
      }
    }
    EXPECT_EQ(seen[0], 0);
    for (size_t node = 1; node < seen.size(); ++node) EXPECT_EQ(seen[node], 1);
  }
}

TEST(TreeLink, CensusesFlowUpAndOrdersDown) {
  TreeLink parent("token", 0, 2), child("own", 1, 2);
  EXPECT_FALSE(parent.children_fresh(seconds(1)));
  EXPECT_EQ(child.parent_silent_seconds(), std::nullopt);
  ASSERT_TRUE(child.connect_parent("127.0.0.1", parent.port(), "token"));
  child.send_census(two_ranks(2), /*whole=*/true);
  child.send_up({{"kind", "suspect"}});
  std::vector<std::string> heard;
  const auto hear = [&](size_t, const TreeNews& news) {
    for (const auto& word : news.from_children) heard.push_back("up " + Json::parse(word)["kind"].get<std::string>());
    for (const auto& word : news.from_parent) heard.push_back("down " + Json::parse(word)["kind"].get<std::string>());
    return true;
  };
  ASSERT_TRUE(pump_until({&parent, &child}, hear, [&] { return parent.children_fresh(seconds(10)); }));
  EXPECT_EQ(parent.children_census().all(), RankSet({2, 3}));
  parent.send_down({{"kind", "report"}});
  ASSERT_TRUE(pump_until({&parent, &child}, hear, [&] { return heard.size() >= 2; }));
  EXPECT_EQ(heard, (std::vector<std::string>{"up suspect", "down report"}));
  EXPECT_LT(child.parent_silent_seconds().value_or(99), 5);
  EXPECT_FALSE(parent.children_left());
}

TEST(TreeLink, AChildThatVanishesIsUnreachable) {
  TreeLink parent("token", 0, 2);
  {
    TreeLink child("own", 1, 2);
    ASSERT_TRUE(child.connect_parent("127.0.0.1", parent.port(), "token"));
    child.send_census(two_ranks(2), true);
    ASSERT_TRUE(pump_until({&parent, &child}, [&] { return parent.children_fresh(seconds(10)); }));
    EXPECT_FALSE(parent.children_census().classes[0].sample.unreachable);
  }
  const auto lost = [&] {
    const Census census = parent.children_census();
    return !census.classes.empty() && census.classes[0].sample.unreachable;
  };
  ASSERT_TRUE(pump_until({&parent}, lost));
  const Judgement judgement = judge(parent.children_census());
  EXPECT_EQ(judgement.verdict, Verdict::kEnd);
  EXPECT_EQ(judgement.diagnosis.headline, "node 1 (here) does not answer any more: ranks 2, 3");
  EXPECT_TRUE(parent.children_left());
}

// The last census stays: its ranks have ended well, and those that wait for them are judged by it.
TEST(TreeLink, AGoodbyeIsNoLoss) {
  TreeLink parent("token", 0, 2);
  {
    TreeLink child("own", 1, 2);
    ASSERT_TRUE(child.connect_parent("127.0.0.1", parent.port(), "token"));
    child.send_census(two_ranks(2), true);
    child.say_goodbye();
    child.send_up({{"kind", "beat"}});  // as a pump that comes after it may
    ASSERT_TRUE(pump_until({&parent}, [&] { return parent.children_left(); }));
  }
  for (int i = 0; i < 20; ++i) parent.pump();
  EXPECT_TRUE(parent.children_fresh(seconds(0)));
  ASSERT_EQ(parent.children_census().classes.size(), 1U);
  EXPECT_FALSE(parent.children_census().classes[0].sample.unreachable);
}

TEST(TreeLink, AParentThatSaidGoodbyeIsNotSilent) {
  for (const bool polite : {true, false}) {
    TreeLink child("own", 1, 2);
    {
      TreeLink parent("token", 0, 2);
      ASSERT_TRUE(child.connect_parent("127.0.0.1", parent.port(), "token"));
      parent.send_down({{"kind", "nobody hears this yet"}});
      bool met = false;
      const auto hear = [&](size_t, const TreeNews& news) { return met = met || !news.from_children.empty(); };
      child.send_up({{"kind", "suspect"}});
      ASSERT_TRUE(pump_until({&parent, &child}, hear, [&] { return met; }));
      if (polite) parent.say_goodbye();
    }
    const auto silent = [&] { return child.parent_silent_seconds(); };
    EXPECT_TRUE(pump_until({&child}, [&] { return polite ? !silent() : silent().value_or(0) > 1e6; }));
  }
}

TEST(TreeLink, HearsOnlyItsChildrenAndOnlyWithTheToken) {
  TreeLink parent("token", 0, 3);
  const auto refused = [&](const Json& hello) {
    const RawPeer peer(parent.port());
    peer.say(hello);
    return pump_until({&parent}, [&] { return peer.refused(); }) && parent.descriptors().size() == 1;
  };
  EXPECT_TRUE(refused({{"kind", "hello"}, {"token", "wrong"}, {"node", 1}}));
  EXPECT_TRUE(refused({{"kind", "hello"}, {"token", ""}, {"node", 1}}));
  EXPECT_TRUE(refused({{"kind", "hello"}, {"node", 1}}));
  EXPECT_TRUE(refused({{"kind", "hello"}, {"token", 7}, {"node", 1}}));
  EXPECT_TRUE(refused({{"kind", "hello"}, {"token", "token"}, {"node", "1"}}));
  EXPECT_TRUE(refused({{"kind", "hello"}, {"token", "token"}, {"node", 0}}));
  EXPECT_TRUE(refused({{"kind", "hello"}, {"token", "token"}, {"node", 9}}));
  EXPECT_TRUE(refused({{"kind", "hello"}, {"token", "token"}, {"node", -1}}));
  EXPECT_TRUE(refused({{"kind", "hello"}, {"token", "token"}, {"node", (int64_t{1} << 32) + 1}}));
  EXPECT_TRUE(refused({{"kind", "census"}, {"token", "token"}, {"node", 1}}));
  EXPECT_TRUE(refused(Json::array()));
  EXPECT_TRUE(refused(nullptr));
  const RawPeer first(parent.port());
  first.say({{"kind", "hello"}, {"token", "token"}, {"node", 1}});
  ASSERT_TRUE(pump_until({&parent}, [&] { return parent.descriptors().size() == 2; }));
  const RawPeer second(parent.port());  // the place is taken
  second.say({{"kind", "hello"}, {"token", "token"}, {"node", 1}});
  EXPECT_TRUE(pump_until({&parent}, [&] { return second.refused(); }));
  EXPECT_FALSE(first.refused());
  EXPECT_EQ(parent.descriptors().size(), 2U);
}

TEST(TreeLink, SilentStrangersAreSentAwayAndKeepNobodyOut) {
  TreeLink parent("token", 0, 2), child("own", 1, 2);
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (int i = 0; i < 60; ++i) silent.push_back(std::make_unique<RawPeer>(parent.port()));
  for (const auto& peer : silent) peer->say_bytes("\x01");  // the beginning of a length
  ASSERT_TRUE(child.connect_parent("127.0.0.1", parent.port(), "token"));
  child.send_census(two_ranks(2), true);
  EXPECT_TRUE(pump_until({&parent, &child}, [&] { return parent.children_fresh(seconds(10)); }));
  EXPECT_TRUE(pump_until({&parent, &child}, [&] {
    return std::all_of(silent.begin(), silent.end(), [](const auto& peer) { return peer->refused(); });
  }));
  EXPECT_EQ(parent.descriptors().size(), 2U);
}

TEST(TreeLink, GarbageFromStrangersAndChildrenHarmsNobody) {
  constexpr uint64_t kSeed = 3;
  fmt::print("seed {}\n", kSeed);
  std::mt19937_64 random(kSeed);
  TreeLink parent("token", 0, 9);
  std::string valid;
  Json::to_cbor({{"kind", "census"}, {"whole", true}, {"census", to_json(two_ranks(2))}}, valid);
  for (int round = 0; round < 300; ++round) {
    const RawPeer peer(parent.port());
    if (round % 2 == 0) peer.say({{"kind", "hello"}, {"token", "token"}, {"node", 1 + round % 8}});
    std::string body = valid;
    for (size_t i = 0, flips = 1 + random() % 8; i < flips; ++i)
      body[random() % body.size()] = static_cast<char>(random());
    if (round % 3 == 0) body.resize(random() % body.size());
    if (round % 5 == 0) {
      peer.say_bytes(body);
    } else {
      peer.say_framed(body);
    }
    parent.pump();
    parent.pump();
    EXPECT_LE(judge(parent.children_census()).diagnosis.text().size(), 1'000'000U);
  }
  TreeLink child("own", 8, 9);  // one place may be left, and the link still works
  EXPECT_LE(parent.descriptors().size(), 9U + 64U);
}

TEST(TreeLink, AnAddressThatMakesNoSenseIsRefused) {
  TreeLink child("own", 1, 2);
  EXPECT_FALSE(child.connect_parent("", 0, "token"));
  EXPECT_FALSE(child.connect_parent("127.0.0.1", -5, "token"));
  EXPECT_FALSE(child.connect_parent("127.0.0.1", 70'000, "token"));
}

}  // namespace
}  // namespace lockstep
