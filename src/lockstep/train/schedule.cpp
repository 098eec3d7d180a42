#include "lockstep/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr double kPolynomialEnd = 1e-7;

double progress_of(const Schedule& schedule, int64_t updates) {
  return static_cast<double>(updates - schedule.warmup_steps) /
         static_cast<double>(std::max<int64_t>(1, schedule.total_steps - schedule.warmup_steps));
}

double cosine(const Schedule& schedule, int64_t updates) {
  const double cycles = schedule.shape.num_cycles.value_or(0.5);
  return 0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * progress_of(schedule, updates)));
}

double restarting_cosine(const Schedule& schedule, int64_t updates) {
  const double progress = progress_of(schedule, updates);
  if (progress >= 1.0) return 0.0;
  return 0.5 * (1.0 + std::cos(std::numbers::pi * std::fmod(schedule.shape.num_cycles.value_or(1.0) * progress, 1.0)));
}

double polynomial(const Schedule& schedule, int64_t updates) {
  const double end = schedule.shape.lr_end.value_or(kPolynomialEnd) / schedule.learning_rate;
  if (updates > schedule.total_steps) return end;
  const double left = std::max(0.0, 1.0 - progress_of(schedule, updates));
  return (1.0 - end) * std::pow(left, schedule.shape.power.value_or(1.0)) + end;
}

double inverse_sqrt(const Schedule& schedule, int64_t updates) {
  constexpr double kTimescale = 10'000;
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  const double scale = schedule.shape.timescale.value_or(warmup > 0 ? warmup : kTimescale);
  return 1.0 / std::sqrt((static_cast<double>(updates) + scale - warmup) / scale);
}

double least_rate(const Schedule& schedule) {
  if (schedule.shape.min_lr && schedule.learning_rate > 0) return *schedule.shape.min_lr / schedule.learning_rate;
  return schedule.shape.min_lr_rate.value_or(schedule.min_lr_rate);
}

bool is_deepspeeds(ScheduleKind kind) { return kind >= ScheduleKind::kWarmup; }

/// DeepSpeed's, as a part of the learning rate. It asks for the rate after the update that it is of, so that the first has
/// the least one, and a warm-up by logarithms the second too.
double deepspeeds_factor(const Schedule& schedule, int64_t updates) {
  const ScheduleShape& shape = schedule.shape;
  const bool turns = schedule.kind == ScheduleKind::kWarmupCosine;
  const int64_t before = updates - 1, warmup = std::max<int64_t>(2, schedule.warmup_steps);
  const double least = turns                        ? shape.warmup_min_ratio.value_or(0)
                       : schedule.learning_rate > 0 ? shape.warmup_min_lr.value_or(0) / schedule.learning_rate
                                                    : 0;
  if (before < 0) return turns ? 0 : least;
  const auto done = static_cast<double>(before);
  const auto length = static_cast<double>(std::max<int64_t>(1, schedule.total_steps - warmup));
  double reached = 1;
  if (before < warmup) {
    reached = shape.linear_warmup ? done / static_cast<double>(warmup)
                                  : std::log(done + 1) / std::log(static_cast<double>(warmup));
  } else if (turns) {
    const double progress = std::min(1.0, static_cast<double>(before - warmup + 1) / length);
    const double end = shape.cos_min_ratio.value_or(1e-4);
    return end + (1 - end) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  } else if (schedule.kind == ScheduleKind::kWarmupDecay) {
    reached = std::max(0.0, static_cast<double>(schedule.total_steps - before) / length);
  }
  return least + (1 - least) * reached;
}

/// The part of the learning rate after the warm-up; of DeepSpeed's, in it too.
double factor(const Schedule& schedule, int64_t updates) {
  switch (schedule.kind) {
    case ScheduleKind::kLinear:
      return static_cast<double>(schedule.total_steps - updates) /
             static_cast<double>(std::max<int64_t>(1, schedule.total_steps - schedule.warmup_steps));
    case ScheduleKind::kCosine:
      return cosine(schedule, updates);
    case ScheduleKind::kCosineWithMinLr:
      return cosine(schedule, updates) * (1.0 - least_rate(schedule)) + least_rate(schedule);
    case ScheduleKind::kCosineWithRestarts:
      return restarting_cosine(schedule, updates);
    case ScheduleKind::kPolynomial:
      return polynomial(schedule, updates);
    case ScheduleKind::kInverseSqrt:
      return inverse_sqrt(schedule, updates);
    case ScheduleKind::kConstant:
    case ScheduleKind::kConstantWithWarmup:
      return 1.0;
    case ScheduleKind::kWarmup:
    case ScheduleKind::kWarmupDecay:
    case ScheduleKind::kWarmupCosine:
      return deepspeeds_factor(schedule, updates);
  }
  return 1.0;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {
      "linear",     "cosine",       "constant", "constant_with_warmup", "cosine_with_min_lr", "cosine_with_restarts",
      "polynomial", "inverse_sqrt", "WarmupLR", "WarmupDecayLR",        "WarmupCosineLR"};
  return names;
}

ScheduleKind schedule_from_flag(const std::string& name) {
  const auto& names = schedule_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<ScheduleKind>(found - names.begin());
  const auto near = nearest_name(name, names);
  throw usage_error(fmt::format("--lr_scheduler_type: expected one of {}, found \"{}\"", join(names, ", "), name),
                    near.empty() ? "" : "did you mean " + near + "?");
}

namespace {

struct ShapeName {
  const char* name;
  std::optional<double> ScheduleShape::*value;
  std::vector<ScheduleKind> kinds;
};

const std::vector<ShapeName>& shape_names() {
  using enum ScheduleKind;
  static const std::vector<ShapeName> names = {
      {"num_cycles", &ScheduleShape::num_cycles, {kCosine, kCosineWithMinLr, kCosineWithRestarts}},
      {"power", &ScheduleShape::power, {kPolynomial}},
      {"lr_end", &ScheduleShape::lr_end, {kPolynomial}},
      {"timescale", &ScheduleShape::timescale, {kInverseSqrt}},
      {"min_lr", &ScheduleShape::min_lr, {kCosineWithMinLr}},
      {"min_lr_rate", &ScheduleShape::min_lr_rate, {kCosineWithMinLr}},
      {"warmup_min_lr", &ScheduleShape::warmup_min_lr, {kWarmup, kWarmupDecay}},
      {"warmup_min_ratio", &ScheduleShape::warmup_min_ratio, {kWarmupCosine}},
      {"cos_min_ratio", &ScheduleShape::cos_min_ratio, {kWarmupCosine}}};
  return names;
}

constexpr auto kWarmupType = "warmup_type";

}  // namespace

void ScheduleShape::check(ScheduleKind kind, double learning_rate, double given_min_lr_rate) const {
  if (given_min_lr_rate > 0 && kind != ScheduleKind::kCosineWithMinLr) {
    throw usage_error(fmt::format("--min_lr_rate {}: --lr_scheduler_type {} knows no least rate", given_min_lr_rate,
                                  schedule_names().at(static_cast<size_t>(kind))),
                      "--lr_scheduler_type cosine_with_min_lr, or leave --min_lr_rate out");
  }
  if (min_lr && (min_lr_rate || given_min_lr_rate > 0)) {
    throw usage_error("--lr_scheduler_kwargs: min_lr and min_lr_rate both say where the rate ends", "one of the two");
  }
  if (kind == ScheduleKind::kCosineWithMinLr && !min_lr && !min_lr_rate && given_min_lr_rate == 0) {
    throw usage_error("--lr_scheduler_type cosine_with_min_lr: nothing says where the rate ends",
                      "--min_lr_rate 0.1, or --lr_scheduler_kwargs '{\"min_lr\": 1e-6}'");
  }
  if (const double end = lr_end.value_or(kPolynomialEnd); kind == ScheduleKind::kPolynomial && end >= learning_rate) {
    throw usage_error(fmt::format("--lr_scheduler_type polynomial ends at {}: that is not below --learning_rate {}",
                                  end, learning_rate),
                      "--lr_scheduler_kwargs '{\"lr_end\": 0}'");
  }
}

ScheduleShape ScheduleShape::from_flag(const std::string& value, ScheduleKind kind) {
  ScheduleShape shape;
  if (value.empty()) return shape;
  std::string text = value;
  std::ranges::replace(text, '\'', '"');  // as Python writes it
  const Json given = parse_json_or_discard(text);
  const std::string& called = schedule_names().at(static_cast<size_t>(kind));
  std::vector<std::string> taken;
  for (const auto& one : shape_names()) {
    if (std::ranges::find(one.kinds, kind) != one.kinds.end()) taken.emplace_back(one.name);
  }
  if (is_deepspeeds(kind)) taken.emplace_back(kWarmupType);
  const std::string hint =
      taken.empty() ? fmt::format("{} takes none", called) : fmt::format("{} takes {}", called, join(taken, ", "));
  if (!given.is_object()) {
    throw usage_error(fmt::format("--lr_scheduler_kwargs: expected an object of numbers, found {}", value), hint);
  }
  for (const auto& [name, number] : given.items()) {
    const auto known = std::ranges::find(shape_names(), name, &ShapeName::name);
    if (std::ranges::find(taken, name) == taken.end()) {
      throw usage_error(fmt::format("--lr_scheduler_kwargs: \"{}\" is nothing that {} takes", name, called), hint);
    }
    if (name == kWarmupType) {
      if (number != "log" && number != "linear") {
        throw usage_error(
            fmt::format("--lr_scheduler_kwargs: \"{}\": expected \"log\" or \"linear\", found {}", name, number.dump()),
            hint);
      }
      shape.linear_warmup = number == "linear";
      continue;
    }
    if (!number.is_number() || !std::isfinite(number.get<double>()) || number.get<double>() < 0 ||
        (name == std::string("timescale") && number.get<double>() == 0)) {
      throw usage_error(fmt::format("--lr_scheduler_kwargs: \"{}\": expected a number that is not negative, found {}",
                                    name, number.dump()),
                        hint);
    }
    shape.*(known->value) = number.get<double>();
  }
  return shape;
}

Json ScheduleShape::as_json() const {
  Json out = Json::object();
  for (const auto& one : shape_names()) {
    if (this->*(one.value)) out[one.name] = *(this->*(one.value));
  }
  if (linear_warmup) out[kWarmupType] = "linear";
  return out;
}

double Schedule::at(int64_t updates) const {
  if (kind == ScheduleKind::kConstant) return learning_rate;
  if (updates < warmup_steps && !is_deepspeeds(kind)) {
    return learning_rate * static_cast<double>(updates) / static_cast<double>(std::max<int64_t>(1, warmup_steps));
  }
  return learning_rate * std::max(0.0, factor(*this, updates));
}

int64_t warmup_steps_of(int64_t total, double ratio, int64_t steps) {
  return steps > 0 ? steps : static_cast<int64_t>(std::ceil(static_cast<double>(total) * ratio));
}

}  // namespace lockstep
