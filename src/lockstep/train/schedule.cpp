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

double wave(double progress, double cycles) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * progress));
}

double cosine(const Schedule& schedule, int64_t updates) {
  return wave(progress_of(schedule, updates), schedule.shape.num_cycles.value_or(0.5));
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

bool warms_up_itself(ScheduleKind kind) { return kind >= ScheduleKind::kWarmupStableDecay; }
bool has_least_rate(ScheduleKind kind) {
  return kind == ScheduleKind::kCosineWithMinLr || kind == ScheduleKind::kCosineWarmupWithMinLr;
}

/// From 1 to 0, as one of these words has it.
double falling(const std::string& word, double progress, double cycles) {
  if (word == "linear") return 1.0 - progress;
  return word == "1-sqrt" ? 1.0 - std::sqrt(progress) : wave(progress, cycles);
}

double stable_then_falling(const Schedule& schedule, int64_t updates) {
  const ScheduleShape& shape = schedule.shape;
  const int64_t left = schedule.total_steps - schedule.warmup_steps, third = left / 3;
  const auto steps = [](const std::optional<double>& said, int64_t unsaid, int64_t part) {
    return !said ? unsaid : *said == kPartOfSteps ? part : static_cast<int64_t>(*said);
  };
  const int64_t decay = steps(shape.num_decay_steps, 0, left - third);
  const int64_t stable = steps(shape.num_stable_steps, left - decay, third);
  const int64_t decayed = updates - schedule.warmup_steps - stable;
  const auto part = [](int64_t of, int64_t all) {
    return static_cast<double>(of) / static_cast<double>(std::max<int64_t>(1, all));
  };
  double rate = decayed < 0 ? 1.0 : 0.0;
  if (updates < schedule.warmup_steps) {
    const std::string& word = shape.warmup_type.empty() ? "linear" : shape.warmup_type;
    rate = falling(word, 1.0 - part(updates, schedule.warmup_steps), 0.5);
  } else if (decayed >= 0 && decayed < decay) {
    rate = falling(shape.decay_type, part(decayed, decay), shape.num_cycles.value_or(0.5));
  }
  const double least = shape.min_lr_ratio.value_or(0);
  return rate * (1.0 - least) + least;
}

/// It begins a step later than others, so that the first has a rate, and the last the least.
double early_cosine(const Schedule& schedule, int64_t updates) {
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  if (updates >= schedule.warmup_steps) {
    const double least = least_rate(schedule);
    return cosine(schedule, updates + 1) * (1.0 - least) + least;
  }
  const auto done = static_cast<double>(updates);
  if (!schedule.shape.warmup_lr_rate) return (done + 1.0) / warmup;
  const double first = *schedule.shape.warmup_lr_rate;
  return first + (1.0 - first) * done / std::max(1.0, warmup - 1.0);
}

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
    reached = shape.warmup_type == "linear" ? done / static_cast<double>(warmup)
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

/// The part of the learning rate after the warm-up; of those that warm up themselves, in it too.
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
    case ScheduleKind::kWarmupStableDecay:
      return stable_then_falling(schedule, updates);
    case ScheduleKind::kCosineWarmupWithMinLr:
      return early_cosine(schedule, updates);
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
  static const std::vector<std::string> names = {"linear",
                                                 "cosine",
                                                 "constant",
                                                 "constant_with_warmup",
                                                 "cosine_with_min_lr",
                                                 "cosine_with_restarts",
                                                 "polynomial",
                                                 "inverse_sqrt",
                                                 "warmup_stable_decay",
                                                 "cosine_warmup_with_min_lr",
                                                 "WarmupLR",
                                                 "WarmupDecayLR",
                                                 "WarmupCosineLR"};
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

template <typename T>
struct ShapeName {
  const char* name;
  T ScheduleShape::*value;
  std::vector<ScheduleKind> kinds;
  std::vector<std::string> words;  // of a text: those that it may be

  bool is_of(ScheduleKind kind) const { return std::ranges::find(kinds, kind) != kinds.end(); }
};
using ShapeNumber = ShapeName<std::optional<double>>;
using ShapeWord = ShapeName<std::string>;

const std::vector<ShapeNumber>& shape_numbers() {
  using enum ScheduleKind;
  static const std::vector<ShapeNumber> names = {
      {"num_cycles",
       &ScheduleShape::num_cycles,
       {kCosine, kCosineWithMinLr, kCosineWithRestarts, kWarmupStableDecay, kCosineWarmupWithMinLr}},
      {"power", &ScheduleShape::power, {kPolynomial}},
      {"lr_end", &ScheduleShape::lr_end, {kPolynomial}},
      {"timescale", &ScheduleShape::timescale, {kInverseSqrt}},
      {"min_lr", &ScheduleShape::min_lr, {kCosineWithMinLr, kCosineWarmupWithMinLr}},
      {"min_lr_rate", &ScheduleShape::min_lr_rate, {kCosineWithMinLr, kCosineWarmupWithMinLr}},
      {"warmup_lr_rate", &ScheduleShape::warmup_lr_rate, {kCosineWarmupWithMinLr}},
      {"num_decay_steps", &ScheduleShape::num_decay_steps, {kWarmupStableDecay}},
      {"num_stable_steps", &ScheduleShape::num_stable_steps, {kWarmupStableDecay}},
      {"min_lr_ratio", &ScheduleShape::min_lr_ratio, {kWarmupStableDecay}},
      {"warmup_min_lr", &ScheduleShape::warmup_min_lr, {kWarmup, kWarmupDecay}},
      {"warmup_min_ratio", &ScheduleShape::warmup_min_ratio, {kWarmupCosine}},
      {"cos_min_ratio", &ScheduleShape::cos_min_ratio, {kWarmupCosine}}};
  return names;
}

const std::vector<ShapeWord>& shape_words() {
  using enum ScheduleKind;
  static const std::vector<ShapeWord> names = {
      {"warmup_type", &ScheduleShape::warmup_type, {kWarmup, kWarmupDecay, kWarmupCosine}, {"log", "linear"}},
      {"warmup_type", &ScheduleShape::warmup_type, {kWarmupStableDecay}, {"linear", "cosine", "1-sqrt"}},
      {"decay_type", &ScheduleShape::decay_type, {kWarmupStableDecay}, {"cosine", "linear", "1-sqrt"}}};
  return names;
}

/// Of a schedule of this kind; nullptr: it takes none of that name.
template <typename T>
const ShapeName<T>* named(const std::vector<ShapeName<T>>& names, const std::string& name, ScheduleKind kind) {
  const auto at = std::ranges::find_if(names, [&](const auto& one) { return one.name == name && one.is_of(kind); });
  return at == names.end() ? nullptr : &*at;
}

UserError wrong_shape(const std::string& name, const std::string& expected, const Json& found,
                      const std::string& hint) {
  return usage_error(fmt::format("--lr_scheduler_kwargs: \"{}\": expected {}, found {}", name, expected, found.dump()),
                     hint);
}

/// The word that may stand in place of this number of steps; nullptr: none may.
const char* part_word(const std::string& name) {
  if (name == "num_stable_steps") return "third";
  return name == "num_decay_steps" ? "two_thirds" : nullptr;
}

double number_from(const std::string& name, const Json& value, const std::string& hint) {
  if (const char* part = part_word(name); part != nullptr && value == part) return kPartOfSteps;
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!std::isfinite(number) || number < 0 || (name == "timescale" && number == 0))
    throw wrong_shape(name, "a number that is not negative", value, hint);
  if (name.ends_with("_steps") && number != std::floor(number))
    throw wrong_shape(name, "a whole number of steps", value, hint);
  return number;
}

std::string word_from(const ShapeWord& of, const Json& value, const std::string& hint) {
  const auto at = std::ranges::find_if(of.words, [&](const std::string& word) { return value == Json(word); });
  if (at == of.words.end()) throw wrong_shape(of.name, join(of.words, " or "), value, hint);
  return *at;
}

}  // namespace

void ScheduleShape::check(ScheduleKind kind, double learning_rate, double given_min_lr_rate) const {
  const std::string& called = schedule_names().at(static_cast<size_t>(kind));
  if (given_min_lr_rate > 0 && !has_least_rate(kind)) {
    throw usage_error(
        fmt::format("--min_lr_rate {}: --lr_scheduler_type {} knows no least rate", given_min_lr_rate, called),
        "--lr_scheduler_type cosine_with_min_lr, or leave --min_lr_rate out");
  }
  if (min_lr && (min_lr_rate || given_min_lr_rate > 0)) {
    throw usage_error("--lr_scheduler_kwargs: min_lr and min_lr_rate both say where the rate ends", "one of the two");
  }
  if (has_least_rate(kind) && !min_lr && !min_lr_rate && given_min_lr_rate == 0) {
    throw usage_error(fmt::format("--lr_scheduler_type {}: nothing says where the rate ends", called),
                      "--min_lr_rate 0.1, or --lr_scheduler_kwargs '{\"min_lr\": 1e-6}'");
  }
  if (kind == ScheduleKind::kWarmupStableDecay && !num_decay_steps) {
    throw usage_error(fmt::format("--lr_scheduler_type {}: nothing says how long the rate falls", called),
                      "--lr_scheduler_kwargs '{\"num_decay_steps\": 100}'");
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
  const auto take = [&](const auto& one) {
    if (one.is_of(kind)) taken.emplace_back(one.name);
  };
  std::ranges::for_each(shape_numbers(), take);
  std::ranges::for_each(shape_words(), take);
  const std::string hint =
      taken.empty() ? fmt::format("{} takes none", called) : fmt::format("{} takes {}", called, join(taken, ", "));
  if (!given.is_object()) {
    throw usage_error(fmt::format("--lr_scheduler_kwargs: expected an object of numbers, found {}", value), hint);
  }
  for (const auto& [name, one] : given.items()) {
    if (const auto* number = named(shape_numbers(), name, kind)) {
      shape.*(number->value) = number_from(name, one, hint);
    } else if (const auto* word = named(shape_words(), name, kind)) {
      shape.*(word->value) = word_from(*word, one, hint);
    } else {
      throw usage_error(fmt::format("--lr_scheduler_kwargs: \"{}\" is nothing that {} takes", name, called), hint);
    }
  }
  return shape;
}

Json ScheduleShape::as_json() const {
  Json out = Json::object();
  for (const auto& one : shape_numbers()) {
    const auto& number = this->*(one.value);
    if (number) out[one.name] = *number == kPartOfSteps ? Json(part_word(one.name)) : Json(*number);
  }
  for (const auto& one : shape_words()) {
    if (!(this->*(one.value)).empty()) out[one.name] = this->*(one.value);
  }
  return out;
}

double Schedule::at(int64_t updates) const {
  if (kind == ScheduleKind::kConstant) return learning_rate;
  if (updates < warmup_steps && !warms_up_itself(kind)) {
    return learning_rate * static_cast<double>(updates) / static_cast<double>(std::max<int64_t>(1, warmup_steps));
  }
  return learning_rate * std::max(0.0, factor(*this, updates));
}

int64_t warmup_steps_of(int64_t total, double ratio, int64_t steps) {
  return steps > 0 ? steps : static_cast<int64_t>(std::ceil(static_cast<double>(total) * ratio));
}

}  // namespace lockstep
