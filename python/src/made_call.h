// What a kernel in front of c10d's own tells of a call that it is given.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "nan_look.h"
#include "watched_calls.h"
#include <ATen/core/function_schema.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace lockstep::python {

/// What of a call must agree on all ranks.
enum class Shapes {
  kGiven,     // of the tensors that a rank gives
  kReceived,  // of those that it gets: what it gives may differ
  kOutside,   // only who calls what: sizes differ by right
  kBytes      // how much of which dtype: each side may shape it as it likes
};

struct Watched {
  const char* name;
  Op op;
  const char* tensors;  // the argument that `shapes` speaks of
  Shapes shapes;
};

inline constexpr std::array kWatched{
    Watched{"allreduce_", Op::kAllReduce, "tensors", Shapes::kGiven},
    Watched{"allreduce_coalesced_", Op::kAllReduce, "tensors", Shapes::kGiven},
    Watched{"broadcast_", Op::kBroadcast, "tensors", Shapes::kGiven},
    Watched{"reduce_", Op::kReduce, "tensors", Shapes::kGiven},
    Watched{"allgather_", Op::kAllGather, "output_tensors", Shapes::kReceived},
    Watched{"_allgather_base_", Op::kAllGather, "input_tensor", Shapes::kGiven},
    Watched{"allgather_coalesced_", Op::kAllGather, "input_list", Shapes::kGiven},
    Watched{"allgather_into_tensor_coalesced_", Op::kAllGather, "inputs", Shapes::kGiven},
    Watched{"gather_", Op::kGather, "input_tensors", Shapes::kGiven},
    Watched{"scatter_", Op::kScatter, "output_tensors", Shapes::kReceived},
    Watched{"reduce_scatter_", Op::kReduceScatter, "input_tensors", Shapes::kGiven},
    Watched{"_reduce_scatter_base_", Op::kReduceScatter, "input_tensor", Shapes::kGiven},
    Watched{"reduce_scatter_tensor_coalesced_", Op::kReduceScatter, "inputs", Shapes::kGiven},
    Watched{"alltoall_base_", Op::kAllToAll, "input", Shapes::kOutside},
    Watched{"alltoall_", Op::kAllToAll, "input_tensors", Shapes::kOutside},
    Watched{"barrier", Op::kBarrier, "tensor", Shapes::kOutside},
    Watched{"send", Op::kSend, "tensors", Shapes::kBytes},
    Watched{"recv_", Op::kRecv, "tensors", Shapes::kBytes},
    Watched{"recv_any_source_", Op::kRecv, "tensors", Shapes::kBytes},
};

inline std::string_view dtype_text(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "f16";
    case at::kLong:
      return "i64";
    case at::kInt:
      return "i32";
    case at::kShort:
      return "i16";
    case at::kChar:
      return "i8";
    case at::kByte:
      return "u8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(type);
  }
}

inline ReduceOp reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAverage;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBitAnd;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBitOr;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBitXor;
    default:
      return ReduceOp::kOther;
  }
}

/// Calls `visit(tensor)` for each that an argument holds, however deep.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& one : value.toListRef()) for_each_tensor(one, visit);
  }
}

/// One shape as it is; of several, and of one with more sizes than are told, how many numbers and a hash of all. With it how
/// many bytes there are, and whether a reduction is given NaN.
inline WatchedCalls::Made made_of(const Watched& what, const c10::IValue& tensors, bool reduces) {
  WatchedCalls::Made made;
  CallSignature& out = made.signature;
  out.op = what.op;
  const bool flat = what.shapes == Shapes::kBytes;
  size_t count = 0, dims = 0;
  int64_t numel = 0;
  uint64_t mixed = 1469598103934665603ULL;
  const auto mix = [&](uint64_t value) { mixed = (mixed ^ value) * 1099511628211ULL; };
  for_each_tensor(tensors, [&](const at::Tensor& one) {
    made.bytes += static_cast<int64_t>(one.nbytes());
    if (reduces) made.has_nan = made.has_nan || holds_nan(one);
    if (what.shapes == Shapes::kOutside) return;
    if (count++ == 0) {
      const auto sizes = one.sizes();
      out = CallSignature::of(what.op, dtype_text(one.scalar_type()), {sizes.data(), sizes.size()});
    }
    dims = std::max<size_t>(dims, static_cast<size_t>(one.dim()));
    numel += one.numel();
    mix(static_cast<uint64_t>(one.scalar_type()));
    for (const int64_t size : one.sizes()) mix(static_cast<uint64_t>(size) + 7);
    mix(1);
  });
  // A number is one however it is wrapped: a job that sums torch.tensor(3.) with torch.zeros(1) is right.
  if (count == 1 && numel == 1) out = CallSignature::of(what.op, out.dtype_text(), {});
  if (what.shapes == Shapes::kOutside || (count < 2 && !flat && dims <= CallSignature::kDims)) return made;
  const std::array<int64_t, 1> all{numel};
  out = CallSignature::of(what.op, out.dtype_text(), all);
  out.has_splits = flat ? 0 : 1;
  out.splits = flat ? 0 : mixed;
  return made;
}

struct Places {
  size_t arguments = 0, tensors = 0, group = 0;
  std::optional<size_t> reduction, root, peer, tag, async;
  std::optional<size_t> outputs, input_splits, output_splits;  // of all_to_all
};

inline Places places_of(const c10::FunctionSchema& schema, const Watched& what) {
  Places out{.arguments = schema.arguments().size()};
  const auto find = [&](const char* name) {
    const auto at = schema.argumentIndexWithName(name);
    return at ? std::make_optional(static_cast<size_t>(*at)) : std::nullopt;
  };
  const auto needed = [&](const char* name) {
    if (const auto at = find(name)) return *at;
    throw std::runtime_error(fmt::format("c10d::{} of this torch has no argument {}", what.name, name));
  };
  out.tensors = needed(what.tensors);
  out.group = needed("process_group");
  out.reduction = find("reduce_op");
  out.root = find("root_rank");
  out.peer = find("dst");
  if (!out.peer) out.peer = find("src");
  out.tag = find("tag");
  if (what.op == Op::kAllToAll) out.outputs = find("output") ? find("output") : find("output_tensors");
  out.input_splits = find("input_split_sizes");
  out.output_splits = find("output_split_sizes");
  out.async = find("async_op") ? find("async_op") : find("asyncOp");
  return out;
}

}  // namespace lockstep::python
