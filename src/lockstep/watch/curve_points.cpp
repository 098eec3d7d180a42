#include "lockstep/watch/curve_points.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr size_t kMostRanks = 16;  // whose memory is drawn

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

CurvePoints of(const StepDone& step) {
  CurvePoints out{.step = step.step, .values = {}};
  const auto add = [&](std::string tag, double value) { out.values.emplace_back("train/" + tag, value); };
  add("loss", step.loss);
  add("grad_norm", step.grad_norm);
  add("learning_rate", step.learning_rate);
  for (const auto& [name, rate] : step.component_rates) add("learning_rate_" + name, rate);
  add("epoch", step.epoch);
  if (step.token_accuracy >= 0) add("token_acc", step.token_accuracy);
  if (step.talker_loss >= 0) add("talker_loss", step.talker_loss);
  add("tokens_per_second", step.tokens_per_second);
  if (!step.peak_bytes.empty()) add("memory_gib", gib(*std::ranges::max_element(step.peak_bytes)));
  return out;
}

CurvePoints of(const MemoryMeasured& memory) {
  CurvePoints out{.step = memory.step, .values = {}};
  if (memory.last) return out;  // the step has its points
  for (size_t rank = 0; rank < std::min(memory.ranks.size(), kMostRanks); ++rank) {
    const RankMemory& one = memory.ranks[rank];
    const std::string tag = fmt::format("memory/rank{}/", rank);
    out.values.emplace_back(tag + "resident_gib", gib(one.resident_bytes));
    for (const auto* device : one.since_last.everything()) {
      out.values.emplace_back(tag + device->name + "_alive_gib", gib(device->alive));
      out.values.emplace_back(tag + device->name + "_peak_gib", gib(device->peak_bytes()));
    }
  }
  return out;
}

CurvePoints of(const EvalDone& eval) {
  CurvePoints out{.step = eval.step, .values = {}};
  const auto add = [&](std::string tag, double value) { out.values.emplace_back("eval/" + tag, value); };
  add("loss", eval.loss);
  if (eval.token_accuracy >= 0) add("token_acc", eval.token_accuracy);
  if (eval.talker_loss >= 0) add("talker_loss", eval.talker_loss);
  if (eval.exact_match >= 0) add("exact_match", eval.exact_match);
  for (const auto& [name, value] : eval.metrics) add(name, value);
  return out;
}

template <class Other>
CurvePoints of(const Other&) {
  return {};
}

}  // namespace

CurvePoints curve_points(const Event& event) {
  return std::visit([](const auto& happened) { return of(happened); }, event);
}

}  // namespace lockstep
