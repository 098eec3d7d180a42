// Nested values whose structure differs between the ranks: metrics, metadata, what evaluation returns.
#include "fault.h"
#include <ATen/core/Tensor.h>

#include "lockstep/comm/gather_nested.h"

namespace lockstep::faults {
namespace {

constexpr const char* kHere = "structures\\.cpp:\\d+";
constexpr const char* kSame = "same structure";

using MakeValue = Value (*)(const Rank& rank);

/// One nested gather in place of the loss.
template <MakeValue kMake>
void gathered(Script& script, Rank&) {
  replace(script, "loss", [](Rank& r) {
    if (r.is_culprit()) r.injects();
    const auto all =
        gather_nested(r.control(), Value::Dict{{"id", Value(int64_t{r.rank})}, {"metadata", kMake(r)}}, "metadata");
    for (int from = 0; from < r.size; ++from) {
      r.expect(*(*all[static_cast<size_t>(from)].dict())[0].second.integer() == from, "metadata");
    }
  });
}

Value none(const Rank&) { return {}; }
Value text(const Rank&) { return "a cat"; }
Value number(const Rank& r) { return int64_t{r.rank}; }
Value one_tensor(const Rank& r) { return filled({2}, r.rank); }
Value pair(const Rank& r) { return Value::Tuple{{Value(filled({2}, r.rank)), Value(filled({2}, r.rank))}}; }
Value single(const Rank& r) { return Value::Tuple{{Value(filled({2}, r.rank))}}; }

/// 64 MiB in all.
Value much(const Rank& r) { return filled({(16 << 20) / r.size}, r.rank); }

}  // namespace

std::vector<Fault> structures() {
  return {
      {.name = "tuple_2_1",
       .summary = "a nested gather: a tuple of 2 beside a tuple of 1",
       .expected = {"error|mismatch", "all_gather_bytes", "metadata", kHere, "structures differ", kSame},
       .inject = gathered<single>,
       .others = gathered<pair>,
       .bar = "mismatch"},
      {.name = "none_tensor",
       .summary = "a nested gather: nothing beside a tensor",
       .expected = {"error|mismatch", "all_gather_bytes", "metadata", kHere, "structures differ", kSame},
       .inject = gathered<none>,
       .others = gathered<one_tensor>,
       .bar = "mismatch"},
      {.name = "string_tensor",
       .summary = "a nested gather: a text beside a tensor",
       .expected = {"error|mismatch", "all_gather_bytes", "metadata", kHere, "structures differ", kSame},
       .inject = gathered<text>,
       .others = gathered<one_tensor>,
       .bar = "mismatch"},
      {.name = "number_tuple",
       .summary = "a nested gather: a number beside a tuple",
       .expected = {"error|mismatch", "all_gather_bytes", "metadata", kHere, "structures differ", kSame},
       .inject = gathered<number>,
       .others = gathered<pair>,
       .bar = "mismatch"},
      {.name = "gather_64_mib",
       .summary = "64 MiB in one nested gather (harmless)",
       .expected = {.kind = "fine"},
       .inject = gathered<much>,
       .others = gathered<much>,
       .steps = kFaultStep},
  };
}

}  // namespace lockstep::faults
