// What the roll call adds to one call: the same all_gather in a world of one, made by the transport alone, by a
// Communicator, and by a Communicator whose recorder an agent watches. Batches of the three come in turn, and each is
// compared with the transport's batch beside it. Prints nanoseconds that are added to a call: median, and the quartiles.
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/base/clock.h"
#include "lockstep/comm/backend_solo.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/guard/agent.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int kBatches = 400, kCalls = 2000;
constexpr int kLabels = 400;  // those of a large model: figures are kept by label

template <typename Call>
double nanoseconds_a_call(const Call& call) {
  const auto start = Clock::now();
  for (int i = 0; i < kCalls; ++i) call(i);
  return seconds_since(start) * 1e9 / kCalls;
}

void print(const char* name, std::vector<double> added) {
  std::sort(added.begin(), added.end());
  const auto at = [&](double part) { return added[static_cast<size_t>(part * static_cast<double>(added.size() - 1))]; };
  std::printf("{\"case\": \"%s\", \"ns_added\": %.1f, \"quartiles\": [%.1f, %.1f]}\n", name, at(0.5), at(0.25),
              at(0.75));
}

void measure() {
  const Tensor full = zeros({64}, Dtype::kF32), shard = zeros({64}, Dtype::kF32);
  std::vector<std::string> labels;
  for (int i = 0; i < kLabels; ++i) labels.push_back("language_model.model.layers." + std::to_string(i) + " gather");
  const auto backend = make_solo_backend("cpu");
  const auto watched_recorder = std::make_shared<Recorder>();
  Communicator recorded({}, make_solo_backend("cpu"));
  Communicator watched({}, make_solo_backend("cpu"), {.recorder = watched_recorder});
  Agent agent({.local_ranks = 1, .world_size = 1});
  agent.adopt({.rank = 0}, watched_recorder->memory());
  const auto of = [&](Communicator& comm) {
    return [&](int i) { comm.all_gather(full, shard, labels[static_cast<size_t>(i % kLabels)]).wait(); };
  };
  std::vector<double> by_recorded, by_watched;
  for (int batch = 0; batch < kBatches; ++batch) {
    const double alone =
        nanoseconds_a_call([&](int) { backend->all_gather(full, shard)->finish(std::chrono::minutes(1)); });
    by_recorded.push_back(nanoseconds_a_call(of(recorded)) - alone);
    by_watched.push_back(nanoseconds_a_call(of(watched)) - alone);
  }
  print("recorded", by_recorded);
  print("recorded and watched", by_watched);
}

}  // namespace
}  // namespace lockstep

int main() { lockstep::measure(); }
