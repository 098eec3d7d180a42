#include "lockstep/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

double cosine(const Schedule& schedule, int64_t updates) {
  const double progress = static_cast<double>(updates - schedule.warmup_steps) /
                          static_cast<double>(std::max<int64_t>(1, schedule.total_steps - schedule.warmup_steps));
  return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

/// The part of the learning rate after the warm-up.
double factor(const Schedule& schedule, int64_t updates) {
  switch (schedule.kind) {
    case ScheduleKind::kLinear:
      return static_cast<double>(schedule.total_steps - updates) /
             static_cast<double>(std::max<int64_t>(1, schedule.total_steps - schedule.warmup_steps));
    case ScheduleKind::kCosine:
      return cosine(schedule, updates);
    case ScheduleKind::kCosineWithMinLr:
      return cosine(schedule, updates) * (1.0 - schedule.min_lr_rate) + schedule.min_lr_rate;
    case ScheduleKind::kConstant:
    case ScheduleKind::kConstantWithWarmup:
      return 1.0;
  }
  return 1.0;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {"linear", "cosine", "constant", "constant_with_warmup",
                                                 "cosine_with_min_lr"};
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

double Schedule::at(int64_t updates) const {
  if (kind == ScheduleKind::kConstant) return learning_rate;
  if (updates < warmup_steps) {
    return learning_rate * static_cast<double>(updates) / static_cast<double>(std::max<int64_t>(1, warmup_steps));
  }
  return learning_rate * std::max(0.0, factor(*this, updates));
}

int64_t warmup_steps_of(int64_t total, double ratio, int64_t steps) {
  return steps > 0 ? steps : static_cast<int64_t>(std::ceil(static_cast<double>(total) * ratio));
}

}  // namespace lockstep
