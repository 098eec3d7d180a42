// A plain value in shared memory with one writer and any number of readers, none of which ever waits: a sequence lock
// over atomic words. Also across processes; the other side may die in the middle of a write.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace lockstep {

template <typename T>
class SharedValue {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);

 public:
  void write(const T& value) { write_words(&value, 0, kWords); }

  /// Only words [first, first + count): the rest stays.
  void write_words(const void* plain, size_t first, size_t count) {
    // An odd version marks a write under way. The words are released and acquired one by one, which orders them against
    // the version without a fence.
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    const auto* bytes = static_cast<const char*>(plain);
    for (size_t i = 0; i < count; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i * sizeof word, sizeof word);
      words_[first + i].store(word, std::memory_order_release);
    }
    version_.store(version + 2, std::memory_order_release);
  }

  /// False when a write came in between. `value` then holds a mixture.
  bool read(T& value) const {
    const uint64_t before = version_.load(std::memory_order_acquire);
    std::array<uint64_t, kWords> plain;
    for (size_t i = 0; i < kWords; ++i) plain[i] = words_[i].load(std::memory_order_acquire);
    std::memcpy(static_cast<void*>(&value), plain.data(), sizeof value);
    return before % 2 == 0 && version_.load(std::memory_order_relaxed) == before;
  }

  /// After a few tries the mixture: for a writer that died while writing.
  T read_any() const {
    T value;
    for (int tries = 0; tries < 8; ++tries) {
      if (read(value)) break;
    }
    return value;
  }

  /// How often it was written.
  uint64_t version() const { return version_.load(std::memory_order_acquire) / 2; }

 private:
  static constexpr size_t kWords = sizeof(T) / sizeof(uint64_t);
  std::atomic<uint64_t> version_{0};
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

/// A text of bounded length as plain bytes; longer ones are cut.
template <size_t N>
struct FixedText {
  std::array<char, N> bytes{};

  FixedText() = default;
  explicit FixedText(std::string_view text) {
    if (!text.empty()) std::memcpy(bytes.data(), text.data(), std::min(text.size(), N - 1));
  }
  std::string_view view() const { return {bytes.data(), strnlen(bytes.data(), N)}; }
};

}  // namespace lockstep
