// What the roll call adds to one call: everything that Communicator does for it, with and without an agent that looks.
// Prints nanoseconds a call: the least and the median of many batches.
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/label.h"
#include "lockstep/guard/agent.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {
namespace {

constexpr int kBatches = 200, kCalls = 5000;

void one_call(Recorder& recorder, int group, const Label& label) {
  const std::array<int64_t, 1> shape{4096};
  const auto signature = CallSignature::of(Op::kAllGather, "bf16", shape);
  const uint64_t seq = recorder.enter(group, signature, label.text, label.site);
  if (recorder.strict() || recorder.has_ending()) return;
  recorder.set_state(group, seq, CallState::kLaunched);
  const auto start = Clock::now();
  recorder.wait_begins(group, seq, start);
  recorder.set_state(group, seq, CallState::kDone);
  recorder.wait_ends(group, Clock::now() - start);
}

void measure(const char* name, Recorder& recorder, int group) {
  std::vector<double> ns;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = Clock::now();
    for (int call = 0; call < kCalls; ++call) one_call(recorder, group, "language_model.model.layers.7 gather");
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
  measure("recorded", *recorder, group);
  Agent agent({.local_ranks = 1, .world_size = 1});
  agent.adopt({.rank = 0}, recorder->memory());
  measure("recorded and watched", *recorder, group);
  return 0;
}
