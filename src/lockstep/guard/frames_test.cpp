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
    if (trusted) ends.stream->trust();
    ends.write(framed(cbor(std::string(FrameStream::kMaxFirstFrame, 'x'))));
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
TEST(FrameStream, WithstandsAPeerWithTheToken) {
  for (const std::string& body :
       {std::string(FrameStream::kMaxFrame - 1, '\x81'), std::string(FrameStream::kMaxFrame - 1, '\x9f'),
        std::string(FrameStream::kMaxFrame - 1, '\xa1')}) {
    Ends ends;
    ends.stream->trust();
    const std::string bytes = framed(body);
    for (size_t at = 0; at < bytes.size() && ends.stream->open();) {
      const ssize_t sent = ::send(ends.raw, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<size_t>(sent);
      ends.stream->pump();
    }
    EXPECT_FALSE(ends.stream->receive());
    EXPECT_FALSE(ends.stream->open());
  }
  Ends ends;
  ends.stream->trust();
  std::string small;
  for (int i = 0; i < 200'000; ++i) small += framed("\x01");
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
    if (round % 2 == 0) ends.stream->trust();
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

TEST(Token, IsComparedAsAWhole) {
  const std::string token = random_token();
  EXPECT_EQ(token.size(), 32U);
  EXPECT_NE(token, random_token());
  EXPECT_TRUE(same_token(token, token));
  EXPECT_FALSE(same_token(token, token.substr(0, 31)));
  EXPECT_FALSE(same_token(token, token + "0"));
  EXPECT_FALSE(same_token(token, ""));
  EXPECT_FALSE(same_token("", token));
}

}  // namespace
}  // namespace lockstep
