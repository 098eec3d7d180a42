#include "lockstep/guard/frames.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kHead = sizeof(uint32_t);
constexpr JsonLimits kLimits{.depth = 32};
constexpr size_t kMaxTaken = size_t{1} << 20;     // read bytes that may stay before the rest moves up
constexpr size_t kMaxWaiting = size_t{64} << 20;  // a peer that does not read loses the connection

}  // namespace

FrameStream::FrameStream(FrameStream&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      limit_(other.limit_),
      taken_(std::exchange(other.taken_, 0)),
      deaf_(other.deaf_),
      in_(std::move(other.in_)),
      out_(std::move(other.out_)) {
  other.in_.clear();
}

FrameStream::~FrameStream() { close(); }

void FrameStream::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  out_.clear();
}

void FrameStream::send(const Json& message) {
  if (!open() || deaf_) return;
  std::string body;
  Json::to_cbor(message, body);
  const auto length = static_cast<uint32_t>(body.size());
  if (body.size() > kMaxFrame || out_.size() > kMaxWaiting) return close();
  std::array<char, kHead> head{};
  std::memcpy(head.data(), &length, kHead);
  out_.append(head.data(), kHead).append(body);
  write_out();
}

void FrameStream::write_out() {
  while (open() && !out_.empty()) {
    const ssize_t sent = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent < 0) {  // what the peer said before it left is still to be read: reading closes
      deaf_ = true;
      return out_.clear();
    }
    out_.erase(0, static_cast<size_t>(sent));
  }
}

void FrameStream::pump() {
  write_out();
  std::array<char, 65536> buffer;
  while (open() && in_.size() - taken_ < limit_ + kHead) {
    const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return close();
    in_.append(buffer.data(), static_cast<size_t>(got));
  }
}

/// Nothing more is heard from a peer that talks nonsense.
void FrameStream::refuse() {
  close();
  in_.clear();
  taken_ = 0;
}

std::optional<Json> FrameStream::receive() {
  const size_t there = in_.size() - taken_;
  if (there < kHead) return std::nullopt;
  uint32_t length = 0;
  std::memcpy(&length, in_.data() + taken_, kHead);
  if (length > limit_) {
    refuse();
    return std::nullopt;
  }
  if (there < kHead + length) return std::nullopt;
  const char* begin = in_.data() + taken_ + kHead;
  Json message = parse_cbor_or_discard({begin, length}, kLimits);
  taken_ += kHead + length;
  if (taken_ == in_.size() || taken_ > kMaxTaken) {
    in_.erase(0, taken_);
    taken_ = 0;
  }
  if (message.is_discarded()) {
    refuse();
    return std::nullopt;
  }
  return message;
}

std::string random_token() {
  std::array<unsigned char, 16> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error(ExitCode::kInternal, fmt::format("no random bytes: {}", std::strerror(errno)));
  }
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

bool same_token(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0U : 1U;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

}  // namespace lockstep
