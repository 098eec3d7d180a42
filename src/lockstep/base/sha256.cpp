#include "lockstep/base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lockstep {
namespace {

constexpr size_t kBlock = 64, kLengthBytes = 8;

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t word_at(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

std::string_view as_text(const Digest& digest) { return {reinterpret_cast<const char*>(digest.data()), digest.size()}; }

}  // namespace

void Sha256::mix(const uint8_t* block) {
  using std::rotr;
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = word_at(block + 4 * i);
  for (size_t i = 16; i < w.size(); ++i) {
    const uint32_t a = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t b = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < w.size(); ++i) {
    const uint32_t one = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
    const uint32_t two = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one;
    d = c, c = b, b = a, a = one + two;
  }
  const std::array<uint32_t, 8> mixed{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state_.size(); ++i) state_[i] += mixed[i];
}

Sha256& Sha256::add(std::string_view bytes) {
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  while (left > 0) {
    const size_t held = length_ % kBlock, taken = std::min(left, kBlock - held);
    if (taken == kBlock) {
      mix(at);
    } else {
      std::memcpy(block_.data() + held, at, taken);
      if (held + taken == kBlock) mix(block_.data());
    }
    at += taken;
    left -= taken;
    length_ += taken;
  }
  return *this;
}

Digest Sha256::finish() {
  const uint64_t bits = length_ * 8;
  size_t held = length_ % kBlock;
  block_[held++] = 0x80;
  if (held > kBlock - kLengthBytes) {
    std::fill(block_.begin() + static_cast<std::ptrdiff_t>(held), block_.end(), uint8_t{0});
    mix(block_.data());
    held = 0;
  }
  std::fill(block_.begin() + static_cast<std::ptrdiff_t>(held), block_.end(), uint8_t{0});
  for (size_t i = 0; i < kLengthBytes; ++i) block_[kBlock - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  mix(block_.data());
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

MacKey::MacKey(std::string_view key) {
  constexpr char kInner = 0x36, kOuter = 0x5c;
  std::array<char, kBlock> block{};
  if (key.size() > kBlock) {
    const Digest shorter = Sha256().add(key).finish();
    std::memcpy(block.data(), shorter.data(), shorter.size());
  } else {
    std::copy(key.begin(), key.end(), block.begin());
  }
  for (char& byte : block) byte = static_cast<char>(byte ^ kInner);
  inner_.add({block.data(), block.size()});
  for (char& byte : block) byte = static_cast<char>(byte ^ kInner ^ kOuter);
  outer_.add({block.data(), block.size()});
}

Digest MacKey::finish(Sha256 begun) const {
  const Digest inner = begun.finish();
  Sha256 outer = outer_;
  return outer.add(as_text(inner)).finish();
}

std::string hex(const Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool same_bytes(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0U : 1U;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

}  // namespace lockstep
