#include "lockstep/guard/tree_key.h"

#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr const char* kSecretName = "LOCKSTEP_JOB_SECRET";
constexpr size_t kLeastSecret = 16;  // characters
constexpr size_t kNonce = 32;        // characters of a random_token()

/// The text under `name`, or none.
std::string word(const Json& message, const char* name) {
  const auto at = message.find(name);
  return at != message.end() && at->is_string() ? at->get<std::string>() : std::string();
}

/// One that could not be cut in another way.
bool is_nonce(const std::string& text) {
  return text.size() == kNonce && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string transcript_of(TreeEdge edge, const std::string& child_nonce, const std::string& parent_nonce) {
  return fmt::format("{} {} {} {}", edge.child, edge.parent, child_nonce, parent_nonce);
}

/// Every use of the key has a word of its own: a proof of one is none of another.
Digest derived(const MacKey& key, std::string_view use, const std::string& transcript) {
  return key.mac(fmt::format("lockstep roll call 1 {} {}", use, transcript));
}

MacKey stream_key(const MacKey& key, std::string_view direction, const std::string& transcript) {
  const Digest digest = derived(key, direction, transcript);
  return MacKey({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

bool proves(const Json& message, const MacKey& key, std::string_view who, const std::string& transcript) {
  return same_bytes(word(message, "mac"), hex(derived(key, who, transcript)));
}

}  // namespace

std::string job_secret(const Env& env) {
  std::string secret = env.text(kSecretName).value_or("");
  if (!secret.empty() && secret.size() < kLeastSecret) {
    throw usage_error(
        fmt::format("{}: expected at least {} characters, found {}", kSecretName, kLeastSecret, secret.size()),
        fmt::format("make one, such as with openssl rand -hex 32, and give it to all nodes; or unset {}", kSecretName));
  }
  return secret;
}

MacKey tree_key(std::string_view secret, std::string_view salt) {
  const Digest digest = MacKey(secret).mac(fmt::format("lockstep roll call 1 key {}", salt));
  return MacKey({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

ChildGreeting::ChildGreeting(const MacKey& key, TreeEdge edge) : key_(key), edge_(edge), nonce_(random_token()) {}

Json ChildGreeting::hello() const { return {{"kind", "hello"}, {"node", edge_.child}, {"nonce", nonce_}}; }

Greeted ChildGreeting::hear(FrameStream& stream) {
  stream.pump();
  while (const auto message = stream.receive()) {
    if (const Greeted now = answer(*message, stream); now != Greeted::kGoing) return now;
  }
  if (stream.open()) return Greeted::kGoing;
  return transcript_.empty() ? Greeted::kNonsense : Greeted::kWrongKey;  // it hung up on our proof
}

Greeted ChildGreeting::answer(const Json& message, FrameStream& stream) {
  const std::string kind = message_kind(message);
  if (kind == "challenge" && transcript_.empty() && is_nonce(word(message, "nonce"))) {
    transcript_ = transcript_of(edge_, nonce_, word(message, "nonce"));
    stream.send({{"kind", "proof"}, {"mac", hex(derived(key_, "child", transcript_))}});
    return Greeted::kGoing;
  }
  if (kind != "welcome" || transcript_.empty()) return Greeted::kNonsense;
  if (!proves(message, key_, "parent", transcript_)) return Greeted::kWrongKey;
  stream.seal(stream_key(key_, "up", transcript_), stream_key(key_, "down", transcript_));
  return Greeted::kMet;
}

Greeted ParentGreeting::hear(FrameStream& stream, const MacKey& key, const Wanted& wanted) {
  stream.pump();
  while (const auto message = stream.receive()) {
    if (const Greeted now = answer(*message, stream, key, wanted); now != Greeted::kGoing) return now;
  }
  return stream.open() ? Greeted::kGoing : Greeted::kNonsense;
}

Greeted ParentGreeting::answer(const Json& message, FrameStream& stream, const MacKey& key, const Wanted& wanted) {
  const std::string kind = message_kind(message);
  if (kind == "hello" && !child_ && is_nonce(word(message, "nonce"))) {
    const auto node = message.find("node");
    if (node == message.end() || !node->is_number_integer()) return Greeted::kNonsense;
    const auto number = node->get<int64_t>();
    if (number < 1 || number > std::numeric_limits<int>::max()) return Greeted::kNonsense;
    child_ = static_cast<int>(number);
    if (!wanted(*child_)) return Greeted::kNonsense;
    const std::string nonce = random_token();
    transcript_ = transcript_of({.child = *child_, .parent = node_}, word(message, "nonce"), nonce);
    stream.send({{"kind", "challenge"}, {"nonce", nonce}});
    return Greeted::kGoing;
  }
  if (kind != "proof" || transcript_.empty()) return Greeted::kNonsense;
  if (!proves(message, key, "child", transcript_)) return Greeted::kWrongKey;
  if (!wanted(*child_)) return Greeted::kNonsense;  // another one was quicker
  stream.send({{"kind", "welcome"}, {"mac", hex(derived(key, "parent", transcript_))}});
  stream.seal(stream_key(key, "down", transcript_), stream_key(key, "up", transcript_));
  return Greeted::kMet;
}

}  // namespace lockstep
