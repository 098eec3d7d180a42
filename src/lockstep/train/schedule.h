// The learning rate of each step, as the Hugging Face Trainer's schedules and DeepSpeed's own give it.
//
// Example:
//   const Schedule schedule{
//       .kind = ScheduleKind::kCosine, .learning_rate = 1e-4, .warmup_steps = 10, .total_steps = 200};
//   schedule.at(0);   // of the first update: 0 with warm-up, 1e-4 without
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

enum class ScheduleKind : uint8_t {
  kLinear,
  kCosine,
  kConstant,
  kConstantWithWarmup,
  kCosineWithMinLr,
  kCosineWithRestarts,
  kPolynomial,
  kInverseSqrt,
  kWarmupStableDecay,  // from here on warm-ups are of a schedule's own
  kCosineWarmupWithMinLr,
  kWarmup,  // from here on DeepSpeed's, which a "scheduler" in its file asks for
  kWarmupDecay,
  kWarmupCosine,
};

/// "linear", "cosine", "constant", "constant_with_warmup", "cosine_with_min_lr", "cosine_with_restarts", "polynomial",
/// "inverse_sqrt", "warmup_stable_decay", "cosine_warmup_with_min_lr", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR". Throws
/// UserError(kUsage).
ScheduleKind schedule_from_flag(const std::string& name);
const std::vector<std::string>& schedule_names();

/// In place of a number of steps: a third of those behind the warm-up, rounded down, and what that third leaves of them. As
/// LLaMA-Factory has it where nothing is said; how many they are is known when all steps are.
inline constexpr double kPartOfSteps = -1;

/// What a schedule takes besides; nullopt: as transformers, or DeepSpeed, has it.
struct ScheduleShape {
  std::optional<double>
      num_cycles;                // of cosines and of a decay by one: waves (0.5); of cosine_with_restarts: restarts (1)
  std::optional<double> power;   // of polynomial: 1
  std::optional<double> lr_end;  // of polynomial: 1e-7
  std::optional<double> timescale;         // of inverse_sqrt: the steps of warm-up, or 10000
  std::optional<double> min_lr;            // of the two with min_lr, in place of min_lr_rate
  std::optional<double> min_lr_rate;       // the same over the first rate
  std::optional<double> warmup_lr_rate;    // of cosine_warmup_with_min_lr, its first over the rate
  std::optional<double> num_decay_steps;   // of warmup_stable_decay, which needs it; kPartOfSteps: "two_thirds"
  std::optional<double> num_stable_steps;  // of the same: what the others leave; kPartOfSteps: "third"
  std::optional<double> min_lr_ratio;      // of the same, where it begins and ends over the rate: 0
  std::optional<double> warmup_min_lr;     // of WarmupLR and WarmupDecayLR, where the warm-up begins: 0
  std::optional<double> warmup_min_ratio;  // of WarmupCosineLR, the same over the rate: 0
  std::optional<double> cos_min_ratio;     // of WarmupCosineLR, where it ends over the rate: 1e-4
  std::string warmup_type;  // of DeepSpeed's: "log" or "linear"; of warmup_stable_decay: "linear", "cosine" or "1-sqrt"
  std::string decay_type;   // of warmup_stable_decay: "cosine", "linear" or "1-sqrt". The first where it is empty

  /// --lr_scheduler_kwargs: an object of these names, as JSON or Python has it. Throws
  /// UserError(kUsage) naming what this schedule does not take.
  static ScheduleShape from_flag(const std::string& value, ScheduleKind kind);
  /// Throws UserError(kUsage) where `min_lr_rate`, of a flag of its own, is for another schedule, or said twice, and where one lacks
  /// what it needs.
  void check(ScheduleKind kind, double learning_rate, double given_min_lr_rate) const;
  Json as_json() const;
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double learning_rate = 1e-5;
  int64_t warmup_steps = 0, total_steps = 0;
  double min_lr_rate = 0;  // of cosine_with_min_lr: the last rate over the first
  ScheduleShape shape = {};

  /// The rate of the update that follows `updates` earlier ones. Source: transformers 5.23 optimization.py,
  /// get_*_schedule_with_warmup; deepspeed 0.19.8 lr_schedules.py, whose rate comes one update later.
  double at(int64_t updates) const;
};

/// `steps` where given, else ceil(total * ratio). Source: transformers 5.23 TrainingArguments.get_warmup_steps.
int64_t warmup_steps_of(int64_t total, double ratio, int64_t steps);

}  // namespace lockstep
