#include "lockstep/guard/call.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr uint64_t kPrime = 0x9E3779B97F4A7C15ULL;

/// One round of multiply and fold: the words are few and the reader is a comparison, not an adversary.
uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * kPrime;
  return hash ^ (hash >> 29);
}

template <size_t N>
std::string_view named(const std::array<std::string_view, N>& names, size_t index) {
  return index < N ? names[index] : "unknown";
}

}  // namespace

std::string_view op_name(Op op) {
  static constexpr std::array<std::string_view, 13> kNames{
      "barrier", "all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_gather_bytes", "reduce",
      "gather",  "scatter",    "all_to_all",     "send",       "recv",      "new_group"};
  return named(kNames, static_cast<size_t>(op));
}

std::string_view reduce_op_name(ReduceOp op) {
  static constexpr std::array<std::string_view, 10> kNames{
      "", "sum", "max", "min", "product", "average", "bitwise and", "bitwise or", "bitwise xor", "other operation"};
  return named(kNames, static_cast<size_t>(op));
}

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = kPrime ^ bytes.size();
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    hash = mixed(hash, word);
  }
  return hash;
}

CallSignature CallSignature::of(Op op, std::string_view dtype, std::span<const int64_t> shape) {
  CallSignature signature{.op = op};
  std::memcpy(signature.dtype.data(), dtype.data(), std::min(dtype.size(), signature.dtype.size()));
  signature.num_dims = static_cast<uint8_t>(std::min(shape.size(), kDims));
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i < kDims) {
      signature.dims[i] = shape[i];
    } else {
      signature.dims[kDims - 1] *= shape[i];
    }
  }
  return signature;
}

std::string_view CallSignature::dtype_text() const { return {dtype.data(), strnlen(dtype.data(), dtype.size())}; }

int64_t CallSignature::numel() const {
  uint64_t product = 1;  // wraps for numbers that are none
  for (size_t i = 0; i < std::min<size_t>(num_dims, kDims); ++i) product *= static_cast<uint64_t>(dims[i]);
  return static_cast<int64_t>(product);
}

uint64_t CallSignature::hash() const {
  uint64_t text = 0;
  std::memcpy(&text, dtype.data(), sizeof text);
  const Op side = between_two() ? Op::kSend : op;
  const int32_t whose = between_two() ? -1 : root;
  uint64_t hash = mixed(kPrime, static_cast<uint64_t>(side) | static_cast<uint64_t>(reduce) << 8 |
                                    static_cast<uint64_t>(num_dims) << 16 | static_cast<uint64_t>(has_splits) << 24 |
                                    static_cast<uint64_t>(static_cast<uint32_t>(whose)) << 32);
  hash = mixed(hash, text);
  for (size_t i = 0; i < std::min<size_t>(num_dims, kDims); ++i) hash = mixed(hash, static_cast<uint64_t>(dims[i]));
  return has_splits != 0 ? mixed(hash, splits) : hash;
}

bool CallSignature::agrees_with(const CallSignature& other) const {
  if (!between_two()) return *this == other;
  CallSignature same_side = other;
  same_side.op = op;
  same_side.root = root;
  return other.between_two() && *this == same_side;
}

std::string CallSignature::describe() const {
  std::string text(op_name(op));
  if (op == Op::kBarrier || op == Op::kNewGroup) return text;
  if (reduce != ReduceOp::kNone) text += fmt::format(" {}", reduce_op_name(reduce));
  const std::span<const int64_t> shape(dims.data(), std::min<size_t>(num_dims, kDims));
  text += fmt::format(" {}[{}]", dtype_text(), fmt::join(shape, ", "));
  if (op == Op::kSend) return text + fmt::format(" to rank {}", root);
  if (root >= 0) text += fmt::format(" from rank {}", root);
  return text;
}

}  // namespace lockstep
