#include "lockstep/guard/frames.h"

#include <cstring>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep {
namespace {

struct Ends {
  Ends() {
    std::array<int, 2> both{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both.data()), 0);
    raw = both[0];
    stream = std::make_unique<FrameStream>(both[1]);
  }
  ~Ends() { ::close(raw); }
  void write(std::string_view bytes) const {
    EXPECT_EQ(::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  int raw = -1;
  std::unique_ptr<FrameStream> stream;
};

std::string framed(const std::string& body) {
  const auto length = static_cast<uint32_t>(body.size());
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + body;
}

std::string cbor(const Json& json) {
  std::string body;
  Json::to_cbor(json, body);
  return body;
}

const MacKey kOurs("what we send"), kTheirs("what they send");

/// Marks frames as frames.h says it, in its own words.
class Sealer {
 public:
  explicit Sealer(MacKey key) : key_(key) {}
  std::string frame(const std::string& body) {
    const std::string bytes = framed(body);
    std::string count(8, '\0');
    std::memcpy(count.data(), &number_, 8);  // little-endian
    number_ += 1;
    const Digest mark = key_.mac(count + bytes);
    return bytes + std::string(mark.begin(), mark.begin() + FrameStream::kMark);
  }

 private:
  MacKey key_;
  uint64_t number_ = 0;
};

std::string beat(int n) { return cbor({{"kind", "beat"}, {"n", n}}); }

/// What a sealed stream hears of `bytes` before it closes, if it closes.
std::string heard_of(const std::string& bytes) {
  Ends ends;
  ends.stream->seal(kOurs, kTheirs);
  ends.write(bytes);
  ends.stream->pump();
  std::string heard;
  while (const auto message = ends.stream->receive()) heard += std::to_string((*message)["n"].get<int>());
  if (ends.stream->forged()) heard += " forged";
  EXPECT_EQ(ends.stream->open(), !ends.stream->forged());
  return heard;
}

TEST(FrameStream, CarriesMessagesInOrderHoweverTheyAreCut) {
  Ends ends;
  std::string bytes;
  for (int i = 0; i < 50; ++i) bytes += framed(cbor({{"kind", "beat"}, {"n", i}}));
  int next = 0;
  for (const char byte : bytes) {
    ends.write({&byte, 1});
    ends.stream->pump();
    while (const auto message = ends.stream->receive()) EXPECT_EQ((*message)["n"], next++);
  }
  EXPECT_EQ(next, 50);
  EXPECT_TRUE(ends.stream->open());
}

TEST(FrameStream, ReadsWhatWasSaidBeforeTheEnd) {
  Ends ends;
  ends.write(framed(cbor({{"kind", "end"}})));
  ::shutdown(ends.raw, SHUT_RDWR);
  ends.stream->send({{"kind", "census"}});  // nobody hears it
  ends.stream->send({{"kind", "census"}});
  ends.stream->pump();
  const auto message = ends.stream->receive();
  ASSERT_TRUE(message);
  EXPECT_EQ((*message)["kind"], "end");
  EXPECT_FALSE(ends.stream->open());
}

TEST(FrameStream, AStrangerMayNotSpeakLong) {
  for (const bool trusted : {false, true}) {
    Ends ends;
    const std::string body = cbor(std::string(FrameStream::kMaxFirstFrame, 'x'));
    if (trusted) ends.stream->seal(kOurs, kTheirs);
    ends.write(trusted ? Sealer(kTheirs).frame(body) : framed(body));
    ends.stream->pump();
    EXPECT_EQ(ends.stream->receive().has_value(), trusted);
    EXPECT_EQ(ends.stream->open(), trusted);
  }
}

TEST(FrameStream, NonsenseClosesAndIsForgotten) {
  const std::string deep(4000, '\x81');  // arrays in arrays
  const std::string huge_array("\x9b\x0f\xff\xff\xff\xff\xff\xff\xff", 9),
      huge_object("\xbb\x0f\xff\xff\xff\xff\xff\xff\xff", 9);
  const std::string huge_text("\x7b\x0f\xff\xff\xff\xff\xff\xff\xff", 9), many("\x9a\x00\xff\xff\xff", 5);
  for (const std::string& body : {deep, huge_array, huge_object, huge_text, many, std::string("\xff"), std::string(),
                                  cbor(1) + cbor(2), std::string(100, '\x1c')}) {
    Ends ends;
    ends.write(framed(body) + framed(cbor({{"kind", "beat"}})));
    ends.stream->pump();
    EXPECT_FALSE(ends.stream->receive());
    EXPECT_FALSE(ends.stream->open());
    EXPECT_FALSE(ends.stream->receive());
  }
  Ends ends;
  ends.write(std::string(4, '\xff'));  // a length of four gigabytes
  ends.stream->pump();
  EXPECT_FALSE(ends.stream->receive());
  EXPECT_FALSE(ends.stream->open());
}

// Recursion and many small messages at the size that a trusted peer may send.
TEST(FrameStream, WithstandsAPeerWithTheKey) {
  for (const std::string& body :
       {std::string(FrameStream::kMaxFrame - 1, '\x81'), std::string(FrameStream::kMaxFrame - 1, '\x9f'),
        std::string(FrameStream::kMaxFrame - 1, '\xa1')}) {
    Ends ends;
    ends.stream->seal(kOurs, kTheirs);
    const std::string bytes = Sealer(kTheirs).frame(body);
    for (size_t at = 0; at < bytes.size() && ends.stream->open();) {
      const ssize_t sent = ::send(ends.raw, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<size_t>(sent);
      ends.stream->pump();
    }
    EXPECT_FALSE(ends.stream->receive());
    EXPECT_FALSE(ends.stream->open());
  }
  Ends ends;
  ends.stream->seal(kOurs, kTheirs);
  std::string small;
  Sealer sealer(kTheirs);
  for (int i = 0; i < 200'000; ++i) small += sealer.frame("\x01");
  size_t heard = 0;
  for (size_t at = 0; at < small.size();) {
    const ssize_t sent = ::send(ends.raw, small.data() + at, small.size() - at, MSG_NOSIGNAL);
    if (sent > 0) at += static_cast<size_t>(sent);
    ends.stream->pump();
    if (at == small.size())
      while (ends.stream->receive()) heard += 1;
  }
  EXPECT_EQ(heard, 200'000U);
}

TEST(FrameStream, APeerThatDoesNotReadLosesTheConnection) {
  Ends ends;
  const Json large = std::string(size_t{8} << 20, 'x');
  for (int i = 0; i < 20 && ends.stream->open(); ++i) ends.stream->send(large);
  EXPECT_FALSE(ends.stream->open());
  EXPECT_FALSE(ends.stream->wants_to_write());
}

TEST(FrameStream, AnyBytesAreHeardWithoutHarm) {
  constexpr uint64_t kSeed = 5;
  fmt::print("seed {}\n", kSeed);
  std::mt19937_64 random(kSeed);
  const std::string valid = framed(cbor({{"kind", "census"},
                                         {"whole", true},
                                         {"census", {{{"ranks", {{0, 7}}}, {"sample", {{"rank", 0}, {"x", 1.5}}}}}}}));
  for (int round = 0; round < 3000; ++round) {
    Ends ends;
    if (round % 2 == 0) ends.stream->seal(kOurs, kTheirs);
    std::string bytes = valid + valid;
    if (round % 3 == 0) {
      bytes.resize(random() % 300);
      for (char& byte : bytes) byte = static_cast<char>(random());
    }
    for (size_t i = 0, flips = random() % 6; i < flips && !bytes.empty(); ++i)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    if (bytes.empty()) continue;
    ends.write(bytes);
    ends.stream->pump();
    for (int heard = 0; ends.stream->receive(); ++heard) ASSERT_LT(heard, 300);
  }
}

TEST(SealedFrames, GoBothWays) {
  std::array<int, 2> both{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both.data()), 0);
  FrameStream one(both[0]), other(both[1]);
  one.send({{"n", -1}});
  other.pump();
  EXPECT_EQ(other.receive().value_or(Json()), Json({{"n", -1}}));
  one.seal(kOurs, kTheirs);
  other.seal(kTheirs, kOurs);
  for (int n = 0; n < 300; ++n) {
    one.send({{"n", n}, {"text", std::string(static_cast<size_t>(n), 'x')}});
    other.send({{"n", 1000 + n}});
    other.pump();
    one.pump();
    EXPECT_EQ(other.receive().value_or(Json()).value("n", -1), n);
    EXPECT_EQ(one.receive().value_or(Json()).value("n", -1), 1000 + n);
  }
  EXPECT_TRUE(one.open() && other.open());
}

// Who sits between can end a connection, and nothing else.
TEST(SealedFrames, WhatWasChangedIsNotHeard) {
  Sealer sealer(kTheirs), reflected(kOurs);
  std::vector<std::string> frames;
  for (int n = 0; n < 4; ++n) frames.push_back(sealer.frame(beat(n)));
  EXPECT_EQ(heard_of(frames[0] + frames[1] + frames[2]), "012");
  EXPECT_EQ(heard_of(frames[0] + frames[0]), "0 forged");             // said twice
  EXPECT_EQ(heard_of(frames[0] + frames[2]), "0 forged");             // one left out
  EXPECT_EQ(heard_of(frames[1] + frames[0]), " forged");              // another order
  EXPECT_EQ(heard_of(reflected.frame(beat(0))), " forged");           // our own, sent back
  EXPECT_EQ(heard_of(Sealer(MacKey("")).frame(beat(0))), " forged");  // without the key
  EXPECT_EQ(heard_of(framed(beat(0)) + std::string(16, '\0')), " forged");
  EXPECT_EQ(heard_of(framed(beat(0))), "");  // without a mark: it is waited for
  // A bit anywhere: a longer length waits for more, everything else is seen at once.
  for (size_t at = 0; at < frames[0].size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = frames[0] + frames[1];
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      Ends ends;
      ends.stream->seal(kOurs, kTheirs);
      ends.write(changed);
      ends.stream->pump();
      EXPECT_FALSE(ends.stream->receive()) << at << " " << bit;
    }
  }
}

TEST(Token, IsAnotherOneEachTime) {
  const std::string token = random_token();
  EXPECT_EQ(token.size(), 32U);
  EXPECT_NE(token, random_token());
}

}  // namespace
}  // namespace lockstep
