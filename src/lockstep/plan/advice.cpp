#include "lockstep/plan/advice.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr int kMostTries = 24;
constexpr size_t kChanges = 3;

/// One step along one axis: what it does to the job, and what it costs.
struct Move {
  std::function<void(JobShape&)> apply;
  std::function<std::vector<std::string>(const JobShape&)> flags;  // of the job after all moves
  std::string effect;
  double time = 1;
  bool same_training = true;
};

/// What may be turned up, from nothing (level 0) to the last move.
using Axis = std::vector<Move>;
using Levels = std::vector<size_t>;

bool at_least(const Levels& a, const Levels& b) {
  return std::equal(a.begin(), a.end(), b.begin(), [](size_t x, size_t y) { return x >= y; });
}

std::vector<std::string> offload_flags(const JobShape& job) {
  std::string words;
  if (job.options.placement.offload_optimizer) words = "optimizer";
  if (job.options.placement.offload_params) words += words.empty() ? "params" : ",params";
  return {"--offload " + words};
}

/// What --deepspeed said of offloading is said again.
std::vector<std::string> stage_flags(int stage, const JobShape& job) {
  std::vector<std::string> flags{fmt::format("--deepspeed zero{}", stage)};
  const Placement& placement = job.options.placement;
  if (placement.offload_optimizer || placement.offload_params) flags.push_back(offload_flags(job).front());
  return flags;
}

Axis stage_axis(const JobShape& job) {
  Axis axis;
  const auto add = [&](int stage, double time, std::string effect) {
    axis.push_back({.apply = [stage](JobShape& j) { j.options.zero.stage = stage; },
                    .flags = [stage](const JobShape& j) { return stage_flags(stage, j); },
                    .effect = std::move(effect),
                    .time = time});
  };
  if (job.options.world == 1) return axis;
  if (job.options.training && job.options.zero.stage == 0) add(2, 1.0, "each rank keeps a part of the optimizer");
  if (job.options.zero.stage < 3) add(3, 1.1, "each rank keeps a part of the weights too");
  return axis;
}

/// Halves, with as many rows a step: the largest divisors of them.
Axis batch_axis(const JobShape& job) {
  Axis axis;
  const int64_t rows = job.batch * job.accumulation;
  int64_t last = job.batch;
  for (int64_t limit = job.batch / 2; limit >= 1; limit /= 2) {
    int64_t batch = limit;
    while (rows % batch != 0) --batch;
    if (batch == last) continue;
    last = batch;
    const double halvings = std::log2(static_cast<double>(job.batch) / static_cast<double>(batch));
    const bool training = job.options.training;
    axis.push_back({.apply =
                        [batch, rows](JobShape& j) {
                          j.batch = batch;
                          j.accumulation = rows / batch;
                        },
                    .flags =
                        [training](const JobShape& j) {
                          std::vector<std::string> flags{fmt::format("--per_device_train_batch_size {}", j.batch)};
                          if (training)
                            flags.push_back(fmt::format("--gradient_accumulation_steps {}", j.accumulation));
                          return flags;
                        },
                    .effect = training ? "smaller micro-batches, as many rows a step" : "fewer rows at a time",
                    .time = std::pow(job.options.zero.shards_params() ? 1.1 : 1.05, halvings)});
  }
  return axis;
}

Axis recompute_axis(const JobShape& job, const std::set<Component>& components) {
  if (!job.options.training) return {};
  const bool sees = components.contains(Component::kVision) || components.contains(Component::kAudio);
  const bool towers = sees && !job.options.recompute_vision;
  if (job.options.recompute && !towers) return {};
  return {{.apply = [](JobShape& j) { j.options.recompute = j.options.recompute_vision = true; },
           .flags =
               [towers](const JobShape&) {
                 std::vector<std::string> flags{"--gradient_checkpointing true"};
                 if (towers) flags.emplace_back("--vit_gradient_checkpointing true");
                 return flags;
               },
           .effect = "activations are computed again on the way back",
           .time = job.options.recompute ? 1.05 : 1.33}};
}

Axis offload_optimizer_axis(const AdviceQuestion& question) {
  const PlanOptions& options = question.job.options;
  if (!question.host_apart || !options.training || options.placement.offload_optimizer) return {};
  return {{.apply = [](JobShape& j) { j.options.placement.offload_optimizer = true; },
           .flags = offload_flags,
           .effect = "masters and AdamW's moments in host memory",
           .time = 1.3}};
}

Axis offload_params_axis(const AdviceQuestion& question) {
  if (!question.host_apart || question.job.options.placement.offload_params) return {};
  return {{.apply = [](JobShape& j) { j.options.placement.offload_params = true; },
           .flags = offload_flags,
           .effect = "weights in host memory, a block ahead on the device",
           .time = 1.6}};
}

/// One rank drives the devices of all of its machine.
Axis map_axis(const AdviceQuestion& question) {
  const JobShape& job = question.job;
  const int devices = question.local_ranks;
  if (devices < 2 || job.devices > 1 || job.options.placement.num_devices > 1) return {};
  const auto micro_batches = static_cast<double>(job.accumulation * devices);
  return {{.apply =
               [devices](JobShape& j) {
                 j.devices = devices;
                 j.options.world /= devices;
                 j.accumulation *= devices;
               },
           .flags =
               [training = job.options.training](const JobShape& j) {
                 std::vector<std::string> flags{"--device_map auto", "--nproc 1"};
                 if (training) flags.push_back(fmt::format("--gradient_accumulation_steps {}", j.accumulation));
                 return flags;
               },
           .effect = fmt::format("blocks over the machine's {} devices, one rank for all", devices),
           .time = 1 + (devices - 1) / micro_batches}};
}

Axis freeze_axis(const AdviceQuestion& question) {
  Axis axis;
  if (!question.job.options.training) return axis;
  std::set<Component> frozen;  // of those that there are
  for (const Component component : question.components) {
    if (question.job.options.frozen.contains(component)) frozen.insert(component);
  }
  for (const Component extra :
       {Component::kVision, Component::kAudio, Component::kProjector, Component::kAudioProjector}) {
    const bool trains_more = question.components.size() > frozen.size() + 1;
    if (!question.components.contains(extra) || frozen.contains(extra) || !trains_more) continue;
    frozen.insert(extra);
    std::string trained;
    for (const Component component : question.components) {
      if (!frozen.contains(component)) trained += (trained.empty() ? "" : ",") + std::string(component_name(component));
    }
    axis.push_back({.apply = [frozen](JobShape& j) { j.options.frozen = frozen; },
                    .flags = [trained](const JobShape&) { return std::vector<std::string>{"--train " + trained}; },
                    .effect = fmt::format("{} is not trained", component_name(extra)),
                    .same_training = false});
  }
  return axis;
}

Axis adapters_axis(const AdviceQuestion& question) {
  Axis axis;
  for (const LighterTraining& one : question.lighter) {
    axis.push_back({.apply =
                        [one](JobShape& j) {
                          j.options.adapters = one.adapters;
                          j.options.quantised = one.quantised;
                        },
                    .flags = [flags = one.flags](const JobShape&) { return flags; },
                    .effect = one.effect,
                    .time = one.time,
                    .same_training = false});
  }
  return axis;
}

class Search {
 public:
  Search(const AdviceQuestion& question, const Predict& predict) : question_(question), predict_(predict) {
    for (Axis& axis : std::vector<Axis>{
             stage_axis(question.job), batch_axis(question.job), recompute_axis(question.job, question.components),
             offload_optimizer_axis(question), map_axis(question), offload_params_axis(question), freeze_axis(question),
             adapters_axis(question)}) {
      if (!axis.empty()) axes_.push_back(std::move(axis));
    }
  }

  void run(Advice& advice) {
    Levels all;
    for (const auto& axis : axes_) all.push_back(axis.size());
    if (axes_.empty()) return;
    const Tried most = try_one(all);
    if (!most.fits && most.peak > 0) {
      advice.everything = most.peak;
      return;
    }
    rule_out(all);
    std::vector<Levels> answers;
    for (auto& change : candidates()) {
      const Levels& levels = change.first;
      if (answers.size() == kChanges || tries_ >= kMostTries) break;
      const auto covers = [&](const Levels& other) { return at_least(levels, other); };
      if (std::ranges::any_of(answers, covers)) continue;  // does more than is needed
      if (std::ranges::any_of(failed_, [&](const Levels& other) { return at_least(other, levels); })) continue;
      const Tried tried = try_one(levels);
      if (!tried.fits) continue;
      change.second.peak = tried.peak;
      change.second.host_peak = tried.host_peak;
      answers.push_back(levels);
      advice.changes.push_back(std::move(change.second));
    }
    if (!advice.changes.empty() || !most.fits) return;
    advice.changes.push_back(change_of(all));  // tries ran out
    advice.changes.back().peak = most.peak;
    advice.changes.back().host_peak = most.host_peak;
  }

  int tries() const { return tries_; }

 private:
  struct Tried {
    bool fits = false;
    int64_t peak = 0;  // 0: such a job cannot be
    int64_t host_peak = 0;
  };

  Change change_of(const Levels& levels) const {
    Change change{.job = question_.job};
    for (size_t a = 0; a < axes_.size(); ++a) {
      if (levels[a] == 0) continue;
      const Move& move = axes_[a][levels[a] - 1];
      move.apply(change.job);
      change.time *= move.time;
      change.same_training = change.same_training && move.same_training;
      change.effect += (change.effect.empty() ? "" : "; ") + move.effect;
    }
    for (size_t a = 0; a < axes_.size(); ++a) {
      if (levels[a] == 0) continue;
      for (auto& flag : axes_[a][levels[a] - 1].flags(change.job)) {
        if (std::ranges::find(change.flags, flag) == change.flags.end()) change.flags.push_back(std::move(flag));
      }
    }
    return change;
  }

  Tried try_one(const Levels& levels) {
    ++tries_;
    Tried tried;
    try {
      const MemoryForecast forecast = predict_(change_of(levels).job);
      tried = {forecast.fits(), forecast.needed(), forecast.host.peak()};
    } catch (const UserError&) {  // cannot be
    }
    if (!tried.fits && tried.peak > 0) failed_.push_back(levels);  // less will not do either
    return tried;
  }

  /// What even all others cannot make up for is needed: without it nothing is tried.
  void rule_out(const Levels& all) {
    for (size_t a = 0; a < axes_.size(); ++a) {
      Levels without = all;
      without[a] = 0;
      try_one(without);
    }
  }

  /// Every combination, the cheapest first.
  std::vector<std::pair<Levels, Change>> candidates() const {
    std::vector<std::pair<Levels, Change>> list;
    Levels levels(axes_.size(), 0);
    for (bool more = true; more;) {
      more = false;
      for (size_t a = 0; a < axes_.size() && !more; ++a) {
        more = levels[a] < axes_[a].size();
        levels[a] = more ? levels[a] + 1 : 0;
      }
      if (more) list.emplace_back(levels, change_of(levels));
    }
    const auto rank = [](const Change& c) { return std::tuple(!c.same_training, c.time, c.flags.size()); };
    std::ranges::stable_sort(list, [&](const auto& a, const auto& b) { return rank(a.second) < rank(b.second); });
    return list;
  }

  const AdviceQuestion& question_;
  const Predict& predict_;
  std::vector<Axis> axes_;
  std::vector<Levels> failed_;
  int tries_ = 0;
};

/// Below zero3 no weight is gathered. zero0 is not lighter than zero2: it gathers gradients instead of weights.
void look_for_lighter_stage(const JobShape& job, const Predict& predict, Advice& advice) {
  if (job.options.zero.stage < 3 || job.options.world == 1 || !job.options.training) return;
  JobShape lighter = job;
  lighter.options.zero.stage = 2;
  ++advice.tries;
  const MemoryForecast forecast = predict(lighter);
  if (!forecast.fits()) return;
  advice.lightest = Change{
      .flags = stage_flags(2, lighter), .effect = "communicates less", .peak = forecast.needed(), .job = lighter};
}

/// Doubled as far as the first doubling promises, since rows beyond the first need as much each, and from there step by step.
void look_for_larger_batch(const AdviceQuestion& question, const MemoryForecast& now, const Predict& predict,
                           Advice& advice) {
  const JobShape& job = question.job;
  const auto forecast_of = [&](int64_t batch) {
    JobShape larger = job;
    larger.batch = batch;
    larger.options.kept_blocks = 0;  // they take what this batch has left
    larger.accumulation = std::max<int64_t>(1, job.accumulation * job.batch / batch);
    ++advice.tries;
    return predict(larger);
  };
  int64_t batch = job.batch, too_large = question.most_rows + 1;
  const auto fits = [&](int64_t rows, const MemoryForecast& forecast) {
    if (forecast.fits()) return true;
    too_large = rows;
    return false;
  };
  if (2 * batch < too_large) {
    const MemoryForecast twice = forecast_of(2 * batch);
    if (fits(2 * batch, twice)) {
      const int64_t more = std::max<int64_t>(1, twice.needed() - now.needed());
      const int64_t promised = job.batch * (1 + std::max<int64_t>(0, advice.capacity - now.needed()) / more);
      batch *= 2;
      int64_t guess = batch;
      while (2 * guess <= std::min(promised, too_large - 1)) guess *= 2;
      while (guess > batch && !fits(guess, forecast_of(guess))) guess /= 2;
      batch = guess;
      while (2 * batch < too_large && fits(2 * batch, forecast_of(2 * batch))) batch *= 2;
    }
  }
  const int64_t between = batch + batch / 2;
  advice.largest_batch =
      between > batch && between < too_large && fits(between, forecast_of(between)) ? between : batch;
}

}  // namespace

Advice advise(const AdviceQuestion& question, const MemoryForecast& now, const Predict& predict) {
  Advice advice;
  advice.peak = now.needed();
  for (const auto& device : now.devices) advice.capacity = std::max(advice.capacity, device.capacity);
  advice.known = advice.capacity > 0;
  if (!advice.known) return advice;
  advice.fits = now.fits();
  if (advice.fits) {
    look_for_lighter_stage(question.job, predict, advice);
    look_for_larger_batch(question, now, predict, advice);
    return advice;
  }
  Search search(question, predict);
  search.run(advice);
  advice.tries = search.tries();
  return advice;
}

}  // namespace lockstep
