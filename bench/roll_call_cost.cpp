// What is added to one call: everything that Communicator does for the roll call, with and without an agent that looks,
// and with the figures of communication.
// Prints nanoseconds a call: the least and the median of many batches.
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/figures.h"
#include "lockstep/comm/label.h"
#include "lockstep/guard/agent.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {
namespace {

constexpr int kBatches = 200, kCalls = 5000;

/// `figures`: where the call is counted; none: it is not.
void one_call(Recorder& recorder, int group, const Label& label, Figures* figures) {
  const std::array<int64_t, 1> shape{4096};
  const auto signature = CallSignature::of(Op::kAllGather, "bf16", shape);
  const uint64_t seq = recorder.enter(group, signature, label.text, label.site);
  const auto begun = figures != nullptr ? Clock::now() : Clock::time_point();
  if (recorder.strict() || recorder.has_ending()) return;
  recorder.set_state(group, seq, CallState::kLaunched);
  size_t line = 0;
  CallCost cost{.bytes = 8192};
  if (figures != nullptr) {
    line = figures->line_of(signature.op, label.text);
    cost.launched(Clock::now() - begun);
  }
  const auto start = Clock::now();
  recorder.wait_begins(group, seq, start);
  recorder.set_state(group, seq, CallState::kDone);
  const auto waited = Clock::now() - start;
  recorder.wait_ends(group, waited);
  if (figures == nullptr) return;
  cost.ended(waited, {.busy = waited, .busy_told = true});
  figures->add(line, cost);
}

void measure(const char* name, Recorder& recorder, int group, Figures* figures) {
  std::vector<double> ns;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = Clock::now();
    for (int call = 0; call < kCalls; ++call) {
      one_call(recorder, group, "language_model.model.layers.7 gather", figures);
    }
    ns.push_back(seconds_since(start) * 1e9 / kCalls);
  }
  std::sort(ns.begin(), ns.end());
  std::printf("{\"case\": \"%s\", \"ns_least\": %.1f, \"ns_median\": %.1f}\n", name, ns.front(), ns[ns.size() / 2]);
}

}  // namespace
}  // namespace lockstep

int main() {
  using namespace lockstep;
  const auto recorder = std::make_shared<Recorder>();
  const int group = recorder->add_group("data");
  Figures figures;
  for (int layer = 0; layer < 400; ++layer) {  // the labels of a large model
    figures.line_of(Op::kAllGather, "language_model.model.layers." + std::to_string(layer) + " gather");
  }
  measure("recorded", *recorder, group, nullptr);
  measure("recorded and counted", *recorder, group, &figures);
  Agent agent({.local_ranks = 1, .world_size = 1});
  agent.adopt({.rank = 0}, recorder->memory());
  measure("recorded and watched", *recorder, group, nullptr);
  measure("recorded, counted and watched", *recorder, group, &figures);
  return 0;
}
