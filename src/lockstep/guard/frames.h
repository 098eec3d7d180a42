// Messages over a stream socket between agents: a length, then CBOR. Bounded, never blocking, and what is not a message
// closes the connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/json.h"

namespace lockstep {

class FrameStream {
 public:
  static constexpr size_t kMaxFrame = size_t{16} << 20;
  static constexpr size_t kMaxFirstFrame = 4096;  // until the peer has shown the token

  /// Takes the descriptor, which must not block.
  explicit FrameStream(int fd) : fd_(fd) {}
  ~FrameStream();
  FrameStream(FrameStream&& other) noexcept;
  FrameStream& operator=(FrameStream&&) = delete;

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  bool wants_to_write() const { return open() && !out_.empty(); }
  void close();

  void trust() { limit_ = kMaxFrame; }
  void send(const Json& message);  // queues, and writes what goes at once
  void pump();                     // reads and writes what is there; closes on end, error or garbage
  std::optional<Json> receive();   // the next whole message; closes on garbage

 private:
  void write_out();
  void refuse();

  int fd_;
  size_t limit_ = kMaxFirstFrame, taken_ = 0;  // taken: bytes of `in_` that were received
  bool deaf_ = false;                          // the peer does not read any more
  std::string in_, out_;
};

/// A random word of 32 hexadecimal digits.
std::string random_token();
/// In the same time whatever the difference.
bool same_token(const std::string& a, const std::string& b);

}  // namespace lockstep
