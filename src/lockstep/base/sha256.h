// SHA-256 (FIPS 180-4) and HMAC (RFC 2104), for processes that prove to each other what they know. Ours, since it is one
// page with published test vectors, and no library that is linked has it.
//
// Example:
//   const MacKey key(secret);
//   if (same_bytes(hex(key.mac(message)), shown)) …
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256& add(std::string_view bytes);
  /// Of all that was added. This object is used up.
  Digest finish();

 private:
  void mix(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  uint64_t length_ = 0;  // bytes that were added
};

/// A key of HMAC-SHA256: what depends on the key alone is computed once.
class MacKey {
 public:
  explicit MacKey(std::string_view key);

  Digest mac(std::string_view message) const { return finish(begin().add(message)); }
  /// The same for a message in parts: begin(), add(), finish().
  Sha256 begin() const { return inner_; }
  Digest finish(Sha256 begun) const;

 private:
  Sha256 inner_, outer_;
};

std::string hex(const Digest& digest);  // 64 lower-case digits
/// In the same time whatever the difference.
bool same_bytes(std::string_view a, std::string_view b);

}  // namespace lockstep
