// Calls that differ between the ranks.
#include <algorithm>

#include "fault.h"
#include <ATen/core/Tensor.h>

#include "lockstep/comm/gather_nested.h"
#include "lockstep/tensor/make.h"

namespace lockstep::faults {
namespace {

constexpr const char* kHere = "mismatches\\.cpp:\\d+";
constexpr const char* kInStep = "step\\.cpp:\\d+";
constexpr const char* kOrder = "same calls in the same order";

/// One more call, of equal shape for all but the culprit.
void sum_of(Script& script, const Shape& shape, Dtype dtype = Dtype::kF32) {
  replace(script, "loss", [shape, dtype](Rank& r) {
    if (r.is_culprit()) r.injects();
    const Tensor value = filled(shape, r.rank + 1, dtype);
    r.control().all_reduce_sum(value, "loss");
    r.expect(holds(value, sum_of_ranks(r)), "loss");
  });
}

/// Every rank's scores, of equal shape for all but the culprit.
void gather_scores(Script& script, const Shape& shape, Dtype dtype = Dtype::kF32) {
  replace(script, "loss", [shape, dtype](Rank& r) {
    if (r.is_culprit()) r.injects();
    Shape all_shape = shape;
    all_shape[0] *= r.size;
    const Tensor mine = filled(shape, r.rank, dtype), all = filled(all_shape, -1, dtype);
    r.data().all_gather(all, mine, "scores").wait();
    for (int from = 0; from < r.size; ++from) {
      r.expect(holds(all.narrow(0, from * shape[0], shape[0]), from), "scores");
    }
  });
}

std::vector<Fault> shapes() {
  return {
      {.name = "shape_4_6",
       .summary = "all_reduce of 4 beside 6 elements",
       .expected = {"mismatch", "all_reduce", "loss", kHere, "another shape", "make its shape equal"},
       .inject = [](Script& s, Rank&) { sum_of(s, {6}); },
       .bar = "mismatch"},
      {.name = "shape_200k_300k",
       .summary = "all_reduce of 200,000 beside 300,000 elements",
       .expected = {"mismatch", "all_reduce", "loss", kHere, "another shape", "pad, or cut"},
       .inject = [](Script& s, Rank&) { sum_of(s, {300'000}); },
       .others = [](Script& s, Rank&) { sum_of(s, {200'000}); },
       .bar = "mismatch"},
      {.name = "shape_2x3_3x2",
       .summary = "all_reduce of [2, 3] beside [3, 2]",
       .expected = {"mismatch", "all_reduce", "loss", kHere, "shape of the same size", "shape equal on all ranks"},
       .inject =
           [](Script& s, Rank&) {
             sum_of(s, {3, 2});
           },
       .others =
           [](Script& s, Rank&) {
             sum_of(s, {2, 3});
           },
       .bar = "mismatch"},
      {.name = "uneven_first_dim",
       .summary = "all_gather with another first dimension",
       .expected = {"mismatch", "all_gather", "scores", kHere, "another shape", "gather nested"},
       .inject =
           [](Script& s, Rank&) {
             gather_scores(s, {7, 2});
           },
       .others =
           [](Script& s, Rank&) {
             gather_scores(s, {5, 2});
           },
       .bar = "mismatch"},
      {.name = "dtype_f64_f32",
       .summary = "all_reduce of float64 beside float32",
       .expected = {"mismatch", "all_reduce", "loss", kHere, "dtype.*f64", "one dtype on all ranks"},
       .inject = [](Script& s, Rank&) { sum_of(s, {4}, Dtype::kF64); },
       .bar = "mismatch"},
      {.name = "dtype_i32_f32",
       .summary = "all_gather of int32 beside float32, equal in bytes",
       .expected = {"mismatch", "all_gather", "scores", kHere, "dtype.*i32", "one dtype on all ranks"},
       .inject = [](Script& s, Rank&) { gather_scores(s, {4}, Dtype::kI32); },
       .others = [](Script& s, Rank&) { gather_scores(s, {4}, Dtype::kF32); },
       .bar = "mismatch"},
      {.name = "dtype_i64_f32",
       .summary = "all_reduce of an integer dtype beside float32, equal in bytes",
       .expected = {"mismatch", "all_reduce", "loss", kHere, "dtype.*i64", "one dtype on all ranks"},
       .inject = [](Script& s, Rank&) { sum_of(s, {4}, Dtype::kI64); },
       .others = [](Script& s, Rank&) { sum_of(s, {8}); },
       .bar = "mismatch"},
  };
}

void maximum_of_loss(Rank& r) {
  r.injects();
  const Tensor value = filled({4}, r.rank + 1);
  r.control().all_reduce_max(value, "loss");
}

void gather_of_loss(Rank& r) {
  r.injects();
  const Tensor mine = filled({4}, r.rank), all = filled({4 * r.size}, -1);
  r.control().all_gather(all, mine, "loss").wait();
}

void seed_from_own_rank(Rank& r) {
  r.injects();
  const Tensor seed = filled({3}, static_cast<double>(r.step));
  r.control().broadcast(seed, r.rank, "seed");
}

std::vector<Fault> kinds() {
  return {
      {.name = "all_gather_all_reduce",
       .summary = "all_gather beside all_reduce",
       .expected = {"mismatch", "all_gather", "loss", kHere, "all_gather beside all_reduce", kOrder},
       .inject = [](Script& s, Rank&) { replace(s, "loss", gather_of_loss); },
       .bar = "mismatch"},
      {.name = "sum_max",
       .summary = "all_reduce by MAX beside SUM",
       .expected = {"mismatch", "all_reduce", "loss", kHere, "max.*sum", "same reduce operation"},
       .inject = [](Script& s, Rank&) { replace(s, "loss", maximum_of_loss); },
       .bar = "mismatch"},
      {.name = "broadcast_root",
       .summary = "broadcast from rank 1 beside rank 0",
       .expected = {"mismatch", "broadcast", "seed", kHere, "names root 1", "same root"},
       .inject = [](Script& s, Rank&) { replace(s, "seed", seed_from_own_rank); },
       .bar = "mismatch"},
  };
}

std::vector<Fault> orders() {
  return {
      {.name = "equal_calls_swapped",
       .summary = "two all_reduces of equal shape in the other order",
       .expected = {"mismatch", "all_reduce", "loss|tokens", kInStep, "other order", "one order"},
       .inject =
           [](Script& s, Rank&) {
             insert_before(s, "loss", {"mark", Phase::kStep, "", [](Rank& r) { r.injects(); }});
             swap(s, "loss", "tokens");
           },
       .bar = "mismatch"},
      {.name = "kinds_swapped",
       .summary = "all_reduce and broadcast in the other order",
       .expected = {"mismatch", "all_reduce|broadcast", "tokens|seed", kInStep, "order|another call|skipped", "order"},
       .inject =
           [](Script& s, Rank&) {
             insert_before(s, "tokens", {"mark", Phase::kStep, "", [](Rank& r) { r.injects(); }});
             swap(s, "tokens", "seed");
           },
       .bar = "mismatch"},
      {.name = "layer_skipped",
       .summary = "a batch of text alone: one layer is not gathered there",
       .expected = {"mismatch", "all_gather", "vision\\.layers\\.0 gather", kInStep, "skipped", kOrder},
       .inject =
           [](Script& s, Rank& r) {
             if (r.step == kFaultStep) skip(s, "vision.layers.0 gather");
           },
       .bar = "mismatch"},
      {.name = "layer_skipped_in_turn",
       .summary = "the same on every rank in turn, a step apart",
       .expected = {"mismatch", "all_gather", "vision\\.layers\\.0 gather", kInStep, "skipped", kOrder},
       .inject =
           [](Script& s, Rank& r) {
             if (r.step == kFaultStep) skip(s, "vision.layers.0 gather");
           },
       .others =
           [](Script& s, Rank& r) {
             if ((r.step - kFaultStep + r.culprit) % r.size == r.rank) skip(s, "vision.layers.0 gather");
           },
       .bar = "mismatch"},
      {.name = "all_reduce_skipped",
       .summary = "one all_reduce skipped, and the loop goes on",
       .expected = {"mismatch", "all_reduce", "loss", kInStep, "skipped", kOrder},
       .inject =
           [](Script& s, Rank& r) {
             if (r.step == kFaultStep) skip(s, "loss");
           },
       .bar = "mismatch"},
      {.name = "barrier_missing",
       .summary = "a barrier that one rank does not make",
       .expected = {"mismatch", "barrier", "step end", kInStep, "skipped", kOrder},
       .inject =
           [](Script& s, Rank& r) {
             if (r.step == kFaultStep) skip(s, "step end");
           },
       .bar = "mismatch"},
      {.name = "extra_call",
       .summary = "a call that the others do not make",
       .expected = {"mismatch", "all_reduce", "debug", kHere, "did not", kOrder},
       .inject =
           [](Script& s, Rank& r) {
             if (r.step != kFaultStep) return;
             insert_before(s, "loss", {"debug", Phase::kStep, "", [](Rank& one) {
                                         one.injects();
                                         const Tensor value = filled({4}, 1);
                                         one.control().all_reduce_sum(value, "debug");
                                       }});
           },
       .bar = "mismatch"},
  };
}

void barriers(Rank& r, bool control_first) {
  r.injects();
  Communicator &first = control_first ? r.control() : r.data(), &second = control_first ? r.data() : r.control();
  first.barrier(control_first ? "control is ready" : "data is ready");
  second.barrier(control_first ? "data is ready" : "control is ready");
}

std::vector<Fault> groups() {
  return {
      {.name = "wrong_group",
       .summary = "all_reduce over another group",
       .expected = {"deadlock", "all_reduce", "loss", kHere, "used to make it in group", "in one group"},
       .inject =
           [](Script& s, Rank&) {
             replace(s, "loss", [](Rank& r) {
               r.injects();
               const Tensor value = filled({4}, r.rank + 1);
               r.data().all_reduce_sum(value, "loss");
             });
           },
       .bar = "deadlock"},
      {.name = "groups_in_other_order",
       .summary = "two groups used in opposite order",
       .expected = {"deadlock", "barrier", "data is ready|control is ready", kHere, "wait for each other",
                    "one order on all ranks"},
       .inject = [](Script& s, Rank&) { replace(s, "loss", [](Rank& r) { barriers(r, false); }); },
       .others = [](Script& s, Rank&) { replace(s, "loss", [](Rank& r) { barriers(r, true); }); },
       .bar = "deadlock"},
  };
}

}  // namespace

std::vector<Fault> mismatches() {
  std::vector<Fault> all = shapes();
  for (auto part : {kinds(), orders(), groups()}) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace lockstep::faults
