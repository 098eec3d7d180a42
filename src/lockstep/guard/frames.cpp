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
constexpr size_t kMaxWaiting = size_t{64} << 20;  // a peer that does not read loses the connection

}  // namespace

FrameStream::FrameStream(FrameStream&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), limit_(other.limit_), in_(std::move(other.in_)), out_(std::move(other.out_)) {}

FrameStream::~FrameStream() { close(); }

void FrameStream::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  out_.clear();
}

void FrameStream::send(const Json& message) {
  if (!open()) return;
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
    if (sent < 0) return close();
    out_.erase(0, static_cast<size_t>(sent));
  }
}

void FrameStream::pump() {
  write_out();
  std::array<char, 65536> buffer;
  while (open() && in_.size() < limit_ + kHead) {
    const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return close();
    in_.append(buffer.data(), static_cast<size_t>(got));
  }
}

std::optional<Json> FrameStream::receive() {
  if (in_.size() < kHead) return std::nullopt;
  uint32_t length = 0;
  std::memcpy(&length, in_.data(), kHead);
  if (length > limit_) {
    in_.clear();
    close();
    return std::nullopt;
  }
  if (in_.size() < kHead + length) return std::nullopt;
  const auto begin = in_.begin() + static_cast<std::ptrdiff_t>(kHead);
  Json message = Json::from_cbor(begin, begin + length, /*strict=*/true, /*allow_exceptions=*/false);
  in_.erase(0, kHead + length);
  if (message.is_discarded()) {
    close();
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
