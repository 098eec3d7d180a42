#include "lockstep/guard/tree_link.h"

#include <cstring>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>

#include "lockstep/guard/test_tree.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

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
  TreeLink parent(0, 2), child(1, 2);
  share_key({&parent, &child});
  EXPECT_FALSE(parent.children_fresh(seconds(1)));
  EXPECT_EQ(child.parent_silent_seconds(), std::nullopt);
  ASSERT_TRUE(meet(child, parent));
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
  TreeLink parent(0, 2);
  share_key({&parent});
  {
    TreeLink child(1, 2);
    share_key({&child});
    ASSERT_TRUE(meet(child, parent));
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

TEST(TreeLink, AParentWhoseNameLeadsToSeveralPlacesIsFoundAtTheOneThatAnswers) {
  TreeLink parent(0, 2), child(1, 2);
  share_key({&parent, &child});
  ParentAddress several{.text = "two places"};
  for (const int port : {1, parent.port()}) {  // nobody listens at the first
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = htons(static_cast<uint16_t>(port));
    std::memcpy(&several.all.emplace_back().address, &place, sizeof place);
    several.all.back().length = sizeof place;
  }
  ASSERT_TRUE(child.connect_parent(several));
  EXPECT_TRUE(pump_until({&parent, &child}, [&] { return child.parent_silent_seconds().has_value(); }));
}

// The last census stays: its ranks have ended well, and those that wait for them are judged by it.
TEST(TreeLink, AGoodbyeIsNoLoss) {
  TreeLink parent(0, 2);
  share_key({&parent});
  {
    TreeLink child(1, 2);
    share_key({&child});
    ASSERT_TRUE(meet(child, parent));
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
    TreeLink child(1, 2);
    share_key({&child});
    {
      TreeLink parent(0, 2);
      share_key({&parent});
      ASSERT_TRUE(meet(child, parent));
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

TEST(TreeLink, AnAddressThatMakesNoSenseIsRefused) {
  TreeLink child(1, 2);
  EXPECT_FALSE(child.connect_parent("127.0.0.1", 4711));  // no key yet
  share_key({&child});
  EXPECT_FALSE(child.connect_parent("", 0));
  EXPECT_FALSE(child.connect_parent("127.0.0.1", -5));
  EXPECT_FALSE(child.connect_parent("127.0.0.1", 70'000));
}

}  // namespace
}  // namespace lockstep
