#include "lockstep/guard/tree_key.h"

#include <array>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

const MacKey kKey = tree_key("a long random secret", "salt");
const Wanted kAnybody = [](int) { return true; };

struct Ends {
  Ends() : Ends(pair()) {}
  FrameStream child, parent;

 private:
  static std::array<int, 2> pair() {
    std::array<int, 2> both{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both.data()), 0);
    return both;
  }
  explicit Ends(const std::array<int, 2>& both) : child(both[0]), parent(both[1]) {}
};

std::string bytes_of(const Digest& digest) { return {digest.begin(), digest.end()}; }

TEST(TreeKey, IsOfSecretAndSalt) {
  const auto made = [](std::string_view secret, std::string_view salt) { return tree_key(secret, salt).mac("x"); };
  EXPECT_EQ(made("secret", "salt"), made("secret", "salt"));
  EXPECT_NE(made("secret", "salt"), made("secret", "salu"));
  EXPECT_NE(made("secret", "salt"), made("secres", "salt"));
  EXPECT_NE(made("secret", "salt"), made("", "salt"));
  EXPECT_EQ(made("secret", "salt"), MacKey(bytes_of(MacKey("secret").mac("lockstep roll call 1 key salt"))).mac("x"));
}

Env with_secret(const std::string& text) {
  return Env(std::map<std::string, std::string>{{"LOCKSTEP_JOB_SECRET", text}});
}

TEST(JobSecret, IsLongOrIsNotThere) {
  EXPECT_EQ(job_secret(Env()), "");
  EXPECT_EQ(job_secret(with_secret("")), "");
  EXPECT_EQ(job_secret(with_secret("0123456789abcdef")), "0123456789abcdef");
  try {
    job_secret(with_secret("hunter2"));
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.message(), "LOCKSTEP_JOB_SECRET: expected at least 16 characters, found 7");
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_EQ(error.message().find("hunter2"), std::string::npos);  // messages are read by others
  }
}

TEST(Greeting, MeetsWhoKnowsTheKeyAndSealsBothWays) {
  Ends ends;
  ChildGreeting child(kKey, {.child = 3, .parent = 0});
  ParentGreeting parent(0);
  ends.child.send(child.hello());
  EXPECT_EQ(parent.hear(ends.parent, kKey, kAnybody), Greeted::kGoing);
  EXPECT_EQ(parent.child(), 3);
  EXPECT_EQ(child.hear(ends.child), Greeted::kGoing);
  EXPECT_EQ(parent.hear(ends.parent, kKey, kAnybody), Greeted::kMet);
  EXPECT_EQ(child.hear(ends.child), Greeted::kMet);
  ends.child.send("up");
  ends.parent.send("down");
  ends.parent.pump();
  ends.child.pump();
  EXPECT_EQ(ends.parent.receive(), Json("up"));
  EXPECT_EQ(ends.child.receive(), Json("down"));
}

// By hand, with nothing of ChildGreeting: the words on the wire are those that tree_key.h tells.
TEST(Greeting, SaysWhatIsWrittenDown) {
  Ends ends;
  ParentGreeting parent(2);
  const std::string nonce = "00112233445566778899aabbccddeeff";
  ends.child.send({{"kind", "hello"}, {"node", 17}, {"nonce", nonce}});
  EXPECT_EQ(parent.hear(ends.parent, kKey, kAnybody), Greeted::kGoing);
  ends.child.pump();
  const Json challenge = ends.child.receive().value_or(Json());
  const std::string facts = "17 2 " + nonce + " " + challenge.value("nonce", "");
  ends.child.send({{"kind", "proof"}, {"mac", hex(kKey.mac("lockstep roll call 1 child " + facts))}});
  EXPECT_EQ(parent.hear(ends.parent, kKey, kAnybody), Greeted::kMet);
  ends.child.pump();
  const Json welcome = ends.child.receive().value_or(Json());
  EXPECT_EQ(welcome, Json({{"kind", "welcome"}, {"mac", hex(kKey.mac("lockstep roll call 1 parent " + facts))}}));
  const auto stream_key = [&](const std::string& way) {
    return MacKey(bytes_of(kKey.mac("lockstep roll call 1 " + way + " " + facts)));
  };
  ends.child.seal(stream_key("up"), stream_key("down"));
  ends.child.send("sealed");
  ends.parent.pump();
  EXPECT_EQ(ends.parent.receive(), Json("sealed"));
}

// A proof holds for one pair of nodes, one direction and one pair of nonces.
TEST(Greeting, AProofOfAnotherMeetingIsNone) {
  const auto meets = [](TreeEdge said, int parent_node, const MacKey& childs, const MacKey& parents) {
    Ends ends;
    ChildGreeting child(childs, said);
    ParentGreeting parent(parent_node);
    ends.child.send(child.hello());
    parent.hear(ends.parent, parents, kAnybody);
    child.hear(ends.child);
    const Greeted now = parent.hear(ends.parent, parents, kAnybody);
    if (now == Greeted::kMet) return child.hear(ends.child);
    ends.parent.close();
    EXPECT_EQ(child.hear(ends.child), Greeted::kWrongKey);  // both learn of it
    return now;
  };
  EXPECT_EQ(meets({.child = 3, .parent = 0}, 0, kKey, kKey), Greeted::kMet);
  EXPECT_EQ(meets({.child = 3, .parent = 1}, 0, kKey, kKey), Greeted::kWrongKey);  // meant for another
  EXPECT_EQ(meets({.child = 3, .parent = 0}, 0, tree_key("another secret", "salt"), kKey), Greeted::kWrongKey);
  EXPECT_EQ(meets({.child = 3, .parent = 0}, 0, tree_key("a long random secret", "old"), kKey), Greeted::kWrongKey);

  // A parent's words sent back to it as a child's.
  Ends ends;
  ChildGreeting child(kKey, {.child = 3, .parent = 0});
  const std::string nonce(32, '7');
  ends.parent.send({{"kind", "challenge"}, {"nonce", nonce}});
  EXPECT_EQ(child.hear(ends.child), Greeted::kGoing);
  ends.parent.pump();
  const Json proof = ends.parent.receive().value_or(Json());
  ends.parent.send({{"kind", "welcome"}, {"mac", proof.value("mac", "")}});
  EXPECT_EQ(child.hear(ends.child), Greeted::kWrongKey);
}

// Whom nobody waits for is not welcomed: it would think that it is heard.
TEST(Greeting, WhoIsNotWantedIsNotWelcomed) {
  Ends ends;
  ChildGreeting child(kKey, {.child = 3, .parent = 0});
  ParentGreeting parent(0);
  ends.child.send(child.hello());
  EXPECT_EQ(parent.hear(ends.parent, kKey, kAnybody), Greeted::kGoing);
  child.hear(ends.child);
  EXPECT_EQ(parent.hear(ends.parent, kKey, [](int) { return false; }), Greeted::kNonsense);
  ends.child.pump();
  EXPECT_EQ(ends.child.receive(), std::nullopt);
}

}  // namespace
}  // namespace lockstep
