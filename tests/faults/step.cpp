#include "step.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/gather_nested.h"
#include "lockstep/comm/step_contract.h"
#include "lockstep/tensor/make.h"

namespace lockstep::faults {
namespace {

constexpr int64_t kNestedEvery = 3;

struct Layer {
  const char* name;
  int64_t numel;  // of a rank's shard
};
constexpr std::array<Layer, 4> kLayers{
    {{"vision.layers.0", 600}, {"layers.0", 1000}, {"layers.1", 1000}, {"lm_head", 3000}}};

int64_t ns_now(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

Script::iterator find(Script& script, std::string_view name) {
  const auto at = std::find_if(script.begin(), script.end(), [&](const Part& part) { return part.name == name; });
  check(at != script.end(), fmt::format("the step has no part \"{}\"", name));
  return at;
}

void contract(Rank& r) {
  const Agreement agreed =
      agree(r.control(),
            {.modalities = Modalities{Modality::kText}.bits(), .rows = 2, .fingerprint = r.data().ring().history()});
  r.expect(agreed.rows == 2 * r.size, "contract");
  if (agreed.modalities.empty()) r.leaves_loop = true;
}

void gather_layer(Rank& r, const Layer& layer) {
  const std::string name = fmt::format("{} gather", layer.name);
  const Tensor shard = filled({layer.numel}, static_cast<double>(r.rank + r.step)),
               whole = filled({layer.numel * r.size}, -1);
  r.data().all_gather(whole, shard, name).wait();
  for (int from = 0; from < r.size; ++from) {
    r.expect(holds(whole.narrow(0, from * layer.numel, layer.numel), static_cast<double>(from + r.step)), name);
  }
}

void reduce_layer(Rank& r, const Layer& layer) {
  const std::string name = fmt::format("{} grads", layer.name);
  const Tensor staged = filled({layer.numel * r.size}, r.rank + 1), sum = filled({layer.numel}, 0);
  r.data().reduce_scatter(sum, staged, /*accumulate=*/false, name).wait();
  r.expect(holds(sum, sum_of_ranks(r)), name);
}

void sum_small(Rank& r, const char* name) {
  const Tensor value = filled({4}, r.rank + 1);
  r.control().all_reduce_sum(value, name);
  r.expect(holds(value, sum_of_ranks(r)), name);
}

void gather_metrics(Rank& r) {
  const Value::Tuple pair{{Value(filled({2}, r.rank)), Value(filled({3}, r.rank))}};
  const auto all =
      gather_nested(r.control(), Value::Dict{{"id", Value(int64_t{r.rank})}, {"metadata", pair}}, "metrics");
  for (int from = 0; from < r.size; ++from) {
    const Value::Dict& one = *all[static_cast<size_t>(from)].dict();
    r.expect(*one[0].second.integer() == from && holds(*one[1].second.tuple()->items[1].tensor(), from), "metrics");
  }
}

void spread_seed(Rank& r) {
  const Tensor seed = filled({3}, r.rank == 0 ? static_cast<double>(r.step) : -1.0);
  r.control().broadcast(seed, 0, "seed");
  r.expect(holds(seed, static_cast<double>(r.step)), "seed");
}

}  // namespace

void Rank::injects() {
  const auto path = std::filesystem::path(folder) / "fault.ns";
  if (std::filesystem::exists(path)) return;
  std::ofstream(path) << ns_now(CLOCK_MONOTONIC) << ' ' << ns_now(CLOCK_REALTIME) << '\n';
}

void Rank::expect(bool right, std::string_view what) {
  if (right) return;
  if (num_wrong++ == 0) fmt::print(stderr, "WRONG rank {} step {}: {}\n", rank, step, what);
  std::fflush(stderr);
}

Script usual_step(Rank& rank) {
  Script script;
  script.push_back({"rows", Phase::kData, fmt::format("rows.jsonl:{}", rank.step), [](Rank&) {}});
  script.push_back({"contract", Phase::kData, "", contract});
  for (const auto& layer : kLayers) {
    script.push_back({fmt::format("{} gather", layer.name), Phase::kForward, layer.name,
                      [layer](Rank& r) { gather_layer(r, layer); }});
  }
  script.push_back({"compute", Phase::kForward, "lm_head",
                    [](Rank& r) { std::this_thread::sleep_for(std::chrono::duration<double>(r.forward_seconds)); }});
  for (size_t i = kLayers.size(); i-- > 0;) {
    const Layer& layer = kLayers[i];
    script.push_back({fmt::format("{} grads", layer.name), Phase::kBackward, layer.name,
                      [layer](Rank& r) { reduce_layer(r, layer); }});
  }
  script.push_back({"loss", Phase::kStep, "", [](Rank& r) { sum_small(r, "loss"); }});
  script.push_back({"tokens", Phase::kStep, "", [](Rank& r) { sum_small(r, "tokens"); }});
  if (rank.step % kNestedEvery == 0) script.push_back({"metrics", Phase::kEvaluate, "", gather_metrics});
  script.push_back({"seed", Phase::kStep, "", spread_seed});
  script.push_back({"step end", Phase::kStep, "", [](Rank& r) { r.control().barrier("step end"); }});
  return script;
}

void run_step(const Script& script, Rank& rank) {
  for (const auto& part : script) {
    rank.comm.recorder->during(part.phase, part.place, [&] { part.run(rank); });
  }
  rank.comm.recorder->step_done(rank.step);
}

void insert_uneven(Script& script, const Rank& rank) {
  constexpr int64_t kRows = 1000;
  const auto rows_of = [step = rank.step](int one) { return (one * 7 + step) % 5 * kRows; };
  insert_before(script, "seed",
                {"uneven", Phase::kEvaluate, "", [rows_of](Rank& r) {
                   const auto all = gather_nested(r.control(), Value(filled({rows_of(r.rank), 16}, r.rank)), "answers");
                   for (int from = 0; from < r.size; ++from) {
                     const Tensor& one = *all[static_cast<size_t>(from)].tensor();
                     r.expect(one.size(0) == rows_of(from) && holds(one, from), "answers");
                   }
                 }});
}

void replace(Script& script, std::string_view name, Action action) { find(script, name)->run = std::move(action); }

void insert_before(Script& script, std::string_view name, Part part) {
  const auto at = find(script, name);
  script.insert(at, std::move(part));
}

void skip(Script& script, std::string_view name) {
  replace(script, name, [](Rank& r) { r.injects(); });
}

void swap(Script& script, std::string_view one, std::string_view other) {
  std::iter_swap(find(script, one), find(script, other));
}

Tensor filled(const Shape& shape, double value, Dtype dtype) { return full(shape, value, dtype); }

bool holds(const Tensor& tensor, double value) {
  const Tensor flat = to_dtype(tensor.contiguous(), Dtype::kF32);
  const auto* values = static_cast<const float*>(flat.data_ptr());
  return std::all_of(values, values + flat.numel(), [&](float one) { return one == static_cast<float>(value); });
}

double sum_of_ranks(const Rank& rank) { return rank.size * (rank.size + 1) / 2.0; }

}  // namespace lockstep::faults
