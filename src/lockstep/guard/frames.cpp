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

/// The frame's number stands in no frame: both count.
Digest mark_of(const MacKey& key, uint64_t number, std::string_view frame) {
  std::array<char, sizeof number> count{};
  for (size_t i = 0; i < count.size(); ++i) count[i] = static_cast<char>(number >> (8 * i));
  return key.finish(key.begin().add({count.data(), count.size()}).add(frame));
}

std::string_view cut(const Digest& mark) { return {reinterpret_cast<const char*>(mark.data()), FrameStream::kMark}; }

}  // namespace

FrameStream::FrameStream(FrameStream&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      limit_(other.limit_),
      taken_(std::exchange(other.taken_, 0)),
      deaf_(other.deaf_),
      forged_(other.forged_),
      seal_(std::move(other.seal_)),
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

void FrameStream::seal(const MacKey& sending, const MacKey& receiving) {
  limit_ = kMaxFrame;
  seal_ = Seal{.sending = sending, .receiving = receiving};
}

void FrameStream::send(const Json& message) {
  if (!open() || deaf_) return;
  std::string body;
  Json::to_cbor(message, body);
  const auto length = static_cast<uint32_t>(body.size());
  if (body.size() > kMaxFrame || out_.size() > kMaxWaiting) return close();
  std::array<char, kHead> head{};
  std::memcpy(head.data(), &length, kHead);
  const size_t begin = out_.size();
  out_.append(head.data(), kHead).append(body);
  if (seal_) out_.append(cut(mark_of(seal_->sending, seal_->sent++, std::string_view(out_).substr(begin))));
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
  while (open() && in_.size() - taken_ < kHead + limit_ + mark_size()) {
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
  if (there < kHead + length + mark_size()) return std::nullopt;
  const std::string_view frame(in_.data() + taken_, kHead + length);
  if (seal_) {  // before a byte of it is looked at
    const std::string_view mark(frame.data() + frame.size(), kMark);
    forged_ = !same_bytes(cut(mark_of(seal_->receiving, seal_->heard++, frame)), mark);
    if (forged_) {
      refuse();
      return std::nullopt;
    }
  }
  Json message = parse_cbor_or_discard({frame.data() + kHead, length}, kLimits);
  taken_ += kHead + length + mark_size();
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

std::string message_kind(const Json& message) {
  return message.is_object() && message.contains("kind") && message["kind"].is_string()
             ? message["kind"].get<std::string>()
             : std::string();
}

}  // namespace lockstep
