// What the agents of one job know and nobody else: a key, made of the job's secret and of salt that is new for every
// attempt. Over fresh nonces of both, each of two agents proves that it knows the key, the one that comes first, so that
// a stranger who only asks gets nothing that he could try secrets on. The key itself is never sent.
//
//   child  -> parent   hello      its node, its nonce
//   parent -> child    challenge  its nonce
//   child  -> parent   proof      HMAC(key, "child" and all of that)
//   parent -> child    welcome    HMAC(key, "parent" and all of that); from here on every frame is sealed
//
// Example:
//   const MacKey key = tree_key(job_secret(env), salt);
//   ChildGreeting greeting(key, {.child = 3, .parent = 0});
//   stream.send(greeting.hello());
//   while (greeting.hear(stream) == Greeted::kGoing) …
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/sha256.h"
#include "lockstep/guard/frames.h"

namespace lockstep {

class Env;

/// LOCKSTEP_JOB_SECRET, empty when it is not set. Throws UserError(kUsage) when it is so short that it can be guessed.
std::string job_secret(const Env& env);

/// With an empty secret the key is as public as the salt.
MacKey tree_key(std::string_view secret, std::string_view salt);

enum class Greeted {
  kGoing,
  kMet,       // the stream is sealed
  kWrongKey,  // the other does not know the key, or this one does not
  kNonsense   // or the connection ended
};

struct TreeEdge {
  int child = 0, parent = 0;  // nodes
};

class ChildGreeting {
 public:
  ChildGreeting(const MacKey& key, TreeEdge edge);
  /// What to say first.
  Json hello() const;
  /// Answers what has come, without waiting.
  Greeted hear(FrameStream& stream);

 private:
  Greeted answer(const Json& message, FrameStream& stream);

  MacKey key_;
  TreeEdge edge_;
  std::string nonce_, transcript_;  // transcript: once the parent's nonce is known
};

/// Whether the agent of a node may still come: it is below this one, and is not there yet.
using Wanted = std::function<bool(int node)>;

class ParentGreeting {
 public:
  explicit ParentGreeting(int node) : node_(node) {}
  Greeted hear(FrameStream& stream, const MacKey& key, const Wanted& wanted);
  /// Who it says it is, as soon as it has said hello; proven when kMet.
  std::optional<int> child() const { return child_; }

 private:
  Greeted answer(const Json& message, FrameStream& stream, const MacKey& key, const Wanted& wanted);

  int node_;
  std::optional<int> child_;
  std::string transcript_;  // once the child has said hello
};

}  // namespace lockstep
