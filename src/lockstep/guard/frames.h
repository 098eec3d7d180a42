// Messages over a stream socket between agents: a length, then CBOR, and once both have shown that they know the key a
// mark of it, which also counts. Bounded, never blocking, and what is not a message closes the connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/json.h"
#include "lockstep/base/sha256.h"

namespace lockstep {

class FrameStream {
 public:
  static constexpr size_t kMaxFrame = size_t{16} << 20;
  static constexpr size_t kMaxFirstFrame = 4096;  // until the peer has shown that it knows the key
  static constexpr size_t kMark = 16;             // bytes after a sealed frame

  /// Takes the descriptor, which must not block.
  explicit FrameStream(int fd) : fd_(fd) {}
  ~FrameStream();
  FrameStream(FrameStream&& other) noexcept;
  FrameStream& operator=(FrameStream&&) = delete;

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  bool wants_to_write() const { return open() && !out_.empty(); }
  void close();

  /// From now on every frame ends with HMAC-SHA256 over its number and its bytes, cut to kMark. A frame that was changed,
  /// left out, said twice or made by another closes the connection.
  void seal(const MacKey& sending, const MacKey& receiving);
  bool forged() const { return forged_; }  // closed since a mark was wrong
  void send(const Json& message);          // queues, and writes what goes at once
  void pump();                             // reads and writes what is there; closes on end, error or garbage
  std::optional<Json> receive();           // the next whole message; closes on garbage

 private:
  struct Seal {
    MacKey sending, receiving;
    uint64_t sent = 0, heard = 0;  // frames
  };
  size_t mark_size() const { return seal_ ? kMark : 0; }
  void write_out();
  void refuse();

  int fd_;
  size_t limit_ = kMaxFirstFrame, taken_ = 0;  // taken: bytes of `in_` that were received
  bool deaf_ = false;                          // the peer does not read any more
  bool forged_ = false;
  std::optional<Seal> seal_;
  std::string in_, out_;
};

/// A random word of 32 hexadecimal digits.
std::string random_token();
/// The word under "kind"; empty where there is none.
std::string message_kind(const Json& message);

}  // namespace lockstep
