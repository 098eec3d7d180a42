#include "lockstep/comm/call.h"

#include <array>

#include <fmt/format.h>

namespace lockstep {

std::string_view op_name(Op op) {
  static constexpr std::array<std::string_view, 7> kNames{
      "all_gather", "reduce_scatter", "all_reduce_sum", "all_reduce_max", "broadcast", "all_gather_bytes", "barrier"};
  const auto index = static_cast<size_t>(op);
  return index < kNames.size() ? kNames[index] : "unknown";
}

uint64_t CallSignature::hash() const {
  uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a over the fields
  const auto mix = [&hash](uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((value >> shift) & 0xFF)) * 0x100000001B3ULL;
  };
  mix(static_cast<uint64_t>(op));
  mix(static_cast<uint64_t>(dtype));
  mix(static_cast<uint64_t>(numel));
  mix(static_cast<uint64_t>(static_cast<int64_t>(root)));
  return hash;
}

std::string CallSignature::describe() const {
  if (op == Op::kBarrier) return "barrier";
  std::string text = fmt::format("{} {}[{}]", op_name(op), dtype_name(dtype), numel);
  if (root >= 0) text += fmt::format(" from rank {}", root);
  return text;
}

}  // namespace lockstep
