// The learning rate of each step, as the Hugging Face Trainer's schedules give it.
//
// Example:
//   const Schedule schedule{
//       .kind = ScheduleKind::kCosine, .learning_rate = 1e-4, .warmup_steps = 10, .total_steps = 200};
//   schedule.at(0);   // of the first update: 0 with warm-up, 1e-4 without
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

enum class ScheduleKind : uint8_t { kLinear, kCosine, kConstant, kConstantWithWarmup, kCosineWithMinLr };

/// "linear", "cosine", "constant", "constant_with_warmup", "cosine_with_min_lr". Throws UserError(kUsage).
ScheduleKind schedule_from_flag(const std::string& name);
const std::vector<std::string>& schedule_names();

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double learning_rate = 1e-5;
  int64_t warmup_steps = 0, total_steps = 0;
  double min_lr_rate = 0;  // of cosine_with_min_lr: the last rate over the first

  /// The rate of the update that follows `updates` earlier ones. Source: transformers 5.23 optimization.py,
  /// get_*_schedule_with_warmup.
  double at(int64_t updates) const;
};

/// `steps` where given, else ceil(total * ratio). Source: transformers 5.23 TrainingArguments.get_warmup_steps.
int64_t warmup_steps_of(int64_t total, double ratio, int64_t steps);

}  // namespace lockstep
