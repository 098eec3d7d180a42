// What a collective call is, before any byte moves: the words of the flight ring, of the roll call and of every
// communication error. Plain values without torch, so that any recorder of collective calls can use them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

enum class Op : uint8_t {
  kBarrier,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kAllGatherBytes,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kSend,
  kRecv,
  kNewGroup  // carries nothing: the label says of which ranks
};
std::string_view op_name(Op op);

enum class ReduceOp : uint8_t { kNone, kSum, kMax, kMin, kProduct, kAverage, kBitAnd, kBitOr, kBitXor, kOther };
std::string_view reduce_op_name(ReduceOp op);

/// What must agree on all ranks. The shape is that of this rank's contribution; of a shape with more dimensions than
/// fit, the last one kept holds the product of the rest. Plain bytes: it lives in shared memory.
struct CallSignature {
  static constexpr size_t kDims = 5;

  Op op = Op::kBarrier;
  ReduceOp reduce = ReduceOp::kNone;
  uint8_t num_dims = 0;
  uint8_t has_splits = 0;
  int32_t root = -1;            // of a broadcast; the peer of a send or receive
  std::array<char, 8> dtype{};  // "bf16", without a terminator when 8 long
  std::array<int64_t, kDims> dims{};
  uint64_t splits = 0;  // hash of uneven split sizes

  static CallSignature of(Op op, std::string_view dtype, std::span<const int64_t> shape);
  std::string_view dtype_text() const;
  int64_t numel() const;
  /// Send and receive are the two sides of one call.
  bool between_two() const { return op == Op::kSend || op == Op::kRecv; }
  /// Equal where two signatures agree.
  uint64_t hash() const;
  bool agrees_with(const CallSignature& other) const;
  std::string describe() const;  // "all_reduce sum f32[4, 2]", "broadcast i64[3] from rank 0"
  bool operator==(const CallSignature&) const = default;
};

/// A quick hash of bytes, equal on every machine: for labels and split sizes.
uint64_t hash_bytes(std::string_view bytes);

}  // namespace lockstep
