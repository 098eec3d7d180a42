// Ranks as a test writes them down: the calls that they made, and how they stand. For tests alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/guard/census.h"
#include "lockstep/guard/diagnosis.h"

namespace lockstep {

struct TestCall {
  CallSignature signature;
  std::string label, site;
};
using TestCalls = std::vector<TestCall>;

inline TestCall test_call(Op op, std::string_view dtype, const std::vector<int64_t>& shape, std::string label,
                          std::string site = "model.cpp:10", ReduceOp reduce = ReduceOp::kNone, int root = -1) {
  CallSignature signature = CallSignature::of(op, dtype, shape);
  signature.reduce = reduce;
  signature.root = root;
  return {signature, std::move(label), std::move(site)};
}

/// `steps` steps of a small sharded model: two gathers, two reductions, one norm, one broadcast.
inline TestCalls training_calls(size_t steps) {
  const TestCalls step{
      test_call(Op::kAllGather, "bf16", {64}, "layers.0 gather", "residency.cpp:45"),
      test_call(Op::kAllGather, "bf16", {96}, "layers.1 gather", "residency.cpp:45"),
      test_call(Op::kReduceScatter, "f32", {96}, "layers.1 gradient", "reducer.cpp:71", ReduceOp::kSum),
      test_call(Op::kReduceScatter, "f32", {64}, "layers.0 gradient", "reducer.cpp:71", ReduceOp::kSum),
      test_call(Op::kAllReduce, "f32", {2, 3}, "norm", "clip.cpp:30", ReduceOp::kSum),
      test_call(Op::kBroadcast, "i64", {4}, "batch size", "search.cpp:12", ReduceOp::kNone, 0)};
  TestCalls all;
  for (size_t i = 0; i < steps; ++i) all.insert(all.end(), step.begin(), step.end());
  return all;
}

inline RankReport running_rank(int rank, int world_size) {
  RankReport report{.rank = rank, .local_rank = rank, .world_size = world_size, .pid = 4000 + rank, .host = "here"};
  report.joined = true;
  report.life = Life::kRunning;
  report.phase = Phase::kForward;
  report.step = 3;
  report.read_ns = 1'000'000'000'000;
  return report;
}

/// The calls that `report` made in `group`, through a real ring, so that the histories are real. The n-th began n ms
/// after the first; the report is read long after.
inline GroupReport& add_calls(RankReport& report, const TestCalls& calls, std::string group = "data",
                              size_t tail = FlightRing::kSize) {
  const auto ring = std::make_unique<FlightRing>();
  for (const auto& call : calls) ring->enter(call.signature, call.label, call.site, 0);
  GroupReport made{.name = std::move(group), .entered = ring->entered(), .history = ring->history()};
  made.tail = ring->last(tail);
  made.path = made.tail.empty() ? 0 : made.tail.back().path;
  for (auto& record : made.tail) {
    record.entered_ns = static_cast<int64_t>(record.seq) * 1'000'000;
    record.state = record.seq == made.entered ? CallState::kLaunched : CallState::kDone;
  }
  report.groups.push_back(std::move(made));
  return report.groups.back();
}

inline void wait_in_last(GroupReport& group, double seconds) {
  group.waiting_seq = group.entered;
  group.stands = true;
  group.waiting_seconds = group.last_waiting_seconds = seconds;
}

/// How often to repeat what is random: sanitizer builds set LOCKSTEP_TEST_SCALE, and take the same paths fewer times.
inline int test_rounds(int usual) {
  const char* scale = std::getenv("LOCKSTEP_TEST_SCALE");
  return scale == nullptr ? usual : std::max(1, static_cast<int>(usual * std::atof(scale)));
}

/// Where to start what is random: LOCKSTEP_FUZZ_SEED moves it (tools/fuzz.sh).
inline uint64_t test_seed(uint64_t usual) {
  const char* seed = std::getenv("LOCKSTEP_FUZZ_SEED");
  return seed == nullptr ? usual : usual + std::strtoull(seed, nullptr, 10) * 1000;
}

inline Census census_of(const std::vector<RankReport>& reports) {
  Census census;
  for (const auto& report : reports) census.add(report);
  return census;
}

/// Whether some rank's ring holds a call of this op and label: nothing else may be named.
inline bool recorded(const std::vector<RankReport>& reports, const std::string& op, const std::string& label) {
  for (const auto& report : reports) {
    for (const auto& group : report.groups) {
      for (const auto& record : group.tail) {
        if (op_name(record.signature.op) == op && record.label.view() == label) return true;
      }
    }
  }
  return false;
}

}  // namespace lockstep
