// Sixteen numbers at a time, whatever the instruction set: as many registers side by side as they need. Included only by the
// kernels_*.cpp files.
//
// g++ has vector types of any size, but keeps those that are wider than a register in memory, and compares their numbers one
// by one: e^x took four times as long with AVX2.
#pragma once

#include <cstdint>
#include <utility>

namespace lockstep::kernels {
namespace {

/// So many numbers in the compiler's vector types.
template <int kWidth>
struct Lanes {
  typedef float F __attribute__((vector_size(4 * kWidth)));
  typedef uint32_t U __attribute__((vector_size(4 * kWidth)));
  typedef uint16_t H __attribute__((vector_size(2 * kWidth)));
};

constexpr int64_t kLanes = 16;
/// Numbers of 32 bits in a register, as this file is compiled. (g++ says so in __BIGGEST_ALIGNMENT__, clang does not.)
#if defined(__AVX512F__)
constexpr int kInRegister = 16;
#elif defined(__AVX2__)
constexpr int kInRegister = 8;
#else
constexpr int kInRegister = 4;
#endif
constexpr int kRegisters = static_cast<int>(kLanes) / kInRegister;

/// kLanes numbers. Arithmetic goes lane by lane, as the vector types have it: a comparison gives -1 where it holds, else 0.
template <typename E>
struct Wide {
  typedef E Part __attribute__((vector_size(kInRegister * sizeof(E))));
  Part part[kRegisters] = {};

  Wide() = default;
  [[gnu::always_inline]] Wide(E value)  // NOLINT(google-explicit-constructor): a number stands for all lanes
      : Wide(kAll, [=](int) { return value - Part{}; }) {}
  /// part_of(i) is register i.
  template <typename PartOf>
  requires requires(PartOf part_of) { part_of(0); }
  [[gnu::always_inline]] explicit Wide(PartOf part_of) : Wide(kAll, part_of) {}

  [[gnu::always_inline]] E operator[](int64_t lane) const { return part[lane / kInRegister][lane % kInRegister]; }
  [[gnu::always_inline]] Wide& operator+=(const Wide& other) { return *this = *this + other; }

  [[gnu::always_inline]] friend Wide operator+(const Wide& a, const Wide& b) {
    return Wide([&](int i) { return a.part[i] + b.part[i]; });
  }
  [[gnu::always_inline]] friend Wide operator-(const Wide& a, const Wide& b) {
    return Wide([&](int i) { return a.part[i] - b.part[i]; });
  }
  [[gnu::always_inline]] friend Wide operator*(const Wide& a, const Wide& b) {
    return Wide([&](int i) { return a.part[i] * b.part[i]; });
  }
  [[gnu::always_inline]] friend Wide operator/(const Wide& a, const Wide& b) {
    return Wide([&](int i) { return a.part[i] / b.part[i]; });
  }
  [[gnu::always_inline]] friend Wide operator&(const Wide& a, const Wide& b) {
    return Wide([&](int i) { return a.part[i] & b.part[i]; });
  }
  [[gnu::always_inline]] friend Wide operator|(const Wide& a, const Wide& b) {
    return Wide([&](int i) { return a.part[i] | b.part[i]; });
  }
  [[gnu::always_inline]] friend Wide<int32_t> operator<(const Wide& a, const Wide& b) {
    return Wide<int32_t>([&](int i) { return a.part[i] < b.part[i]; });
  }
  [[gnu::always_inline]] friend Wide<int32_t> operator>(const Wide& a, const Wide& b) {
    return Wide<int32_t>([&](int i) { return a.part[i] > b.part[i]; });
  }
  [[gnu::always_inline]] friend Wide<int32_t> operator>=(const Wide& a, const Wide& b) {
    return Wide<int32_t>([&](int i) { return a.part[i] >= b.part[i]; });
  }
  [[gnu::always_inline]] friend Wide<int32_t> operator!=(const Wide& a, const Wide& b) {
    return Wide<int32_t>([&](int i) { return a.part[i] != b.part[i]; });
  }
  [[gnu::always_inline]] friend Wide operator<<(const Wide& a, int by) {
    return Wide([&](int i) { return a.part[i] << by; });
  }
  [[gnu::always_inline]] friend Wide operator>>(const Wide& a, int by) {
    return Wide([&](int i) { return a.part[i] >> by; });
  }
  [[gnu::always_inline]] friend Wide operator-(const Wide& a) {
    return Wide([&](int i) { return -a.part[i]; });
  }
  [[gnu::always_inline]] friend Wide operator~(const Wide& a) {
    return Wide([&](int i) { return ~a.part[i]; });
  }

 private:
  static constexpr std::make_integer_sequence<int, kRegisters> kAll{};
  template <int... kAt, typename PartOf>
  [[gnu::always_inline]] Wide(std::integer_sequence<int, kAt...> /*all*/, PartOf part_of) : part{part_of(kAt)...} {}
};

using F = Wide<float>;
using I = Wide<int32_t>;
using U = Wide<uint32_t>;
using H = Wide<uint16_t>;

/// The same bits as numbers of another type.
template <typename To, typename From>
[[gnu::always_inline]] inline To bits_as(const From& from) {
  return To([&](int i) { return reinterpret_cast<typename To::Part>(from.part[i]); });
}
/// The same numbers in another type.
template <typename To, typename From>
[[gnu::always_inline]] inline To numbers_as(const From& from) {
  return To([&](int i) { return __builtin_convertvector(from.part[i], typename To::Part); });
}

/// From memory and back a register at a time: what is copied whole, g++ leaves there.
template <typename To>
[[gnu::always_inline]] inline To read(const void* from) {
  return To([&](int i) {
    typename To::Part part;
    __builtin_memcpy(&part, static_cast<const char*>(from) + i * sizeof part, sizeof part);
    return part;
  });
}
template <typename E>
[[gnu::always_inline]] inline void write(void* to, const Wide<E>& numbers) {
  for (int i = 0; i < kRegisters; ++i) {
    const auto part = numbers.part[i];
    __builtin_memcpy(static_cast<char*>(to) + i * sizeof part, &part, sizeof part);
  }
}

}  // namespace
}  // namespace lockstep::kernels
