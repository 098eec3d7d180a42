// What to change so that a job fits, or what room it has: pure, from predictions that the caller makes.
//
// Changes are ordered by what they cost: the time of a step against now, as a rule of thumb (changes that are made
// together multiply). What keeps the training as it is stands before what changes it.
//
//   higher stage, up to zero2        1.00   the wires carry the same; only the update is shared
//   micro-batches of half the rows   1.05   each time; 1.10 in zero3, which gathers weights for each. As many rows a step
//   zero3                            1.10   weights are gathered for the way there and back
//   recompute                        1.33   forward once more; 1.05 when the towers alone do not yet
//   --offload optimizer              1.30   the update runs in host memory
//   a device map over d devices      1 + (d - 1) / micro-batches: who waits for the first and after the last
//   --offload params                 1.60   weights cross the bus for the way there and back
//   fewer components are trained     1.00   another training: behind all others
//   adapters in place of weights     1.00   another training; 1.10 over matrices of 4 bits, which are unpacked for each use
//
// Example:
//   const Advice advice = advise({.job = {.options = options, .batch = 4}}, forecast, predict);
//   std::cout << advice.print();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/plan/memory_forecast.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

/// What changes may vary.
struct JobShape {
  PlanOptions options;
  int64_t batch = 1;         // rows of a micro-batch on one rank
  int64_t accumulation = 1;  // micro-batches of a step
  int devices = 1;           // that a rank drives, by a map made for them; 1: the placement of `options`
};

/// Another training that needs less: adapters, over codes or not.
struct LighterTraining {
  std::vector<std::string> flags;
  std::string effect;
  double time = 1;
  std::shared_ptr<const AdapterLayout> adapters;
  std::shared_ptr<const Quantisation> quantised;
};

struct AdviceQuestion {
  JobShape job;
  bool host_apart = true;          // devices have memory of their own, so that the host's can be used besides
  int local_ranks = 1;             // of a machine; one rank could drive the devices of all
  std::set<Component> components;  // of the model, built
  int64_t most_rows = 1024;        // that a micro-batch could have
  std::vector<LighterTraining> lighter = {};  // each needs less than the one before
};

struct Change {
  std::vector<std::string> flags;  // "--deepspeed zero3"; they take the place of those given
  std::string effect;              // in words
  double time = 1;                 // of a step, against now
  bool same_training = true;
  int64_t peak = 0;       // of the device that needs most, its context included
  int64_t host_peak = 0;  // of host memory, where it is not the device
  JobShape job;
};

struct Advice {
  bool known = false;  // capacities are; nothing is said where not
  bool fits = false;
  int64_t peak = 0, capacity = 0;
  std::vector<Change> changes;     // when it does not fit: up to three that do, the cheapest first
  int64_t everything = 0;          // when no change was found: the peak with all of them
  std::optional<Change> lightest;  // when it fits: a lower stage that fits too, and communicates less
  int64_t largest_batch = 0;       // when it fits: rows of a micro-batch that would too, to within a half
  int tries = 0;                   // predictions asked for

  std::string print() const;  // "" where nothing is known
  Json json() const;
};

using Predict = std::function<MemoryForecast(const JobShape& job)>;

/// `now`: the forecast of the job as it is. `predict` may throw UserError(kMemory, kUsage) for a job that cannot be.
Advice advise(const AdviceQuestion& question, const MemoryForecast& now, const Predict& predict);

}  // namespace lockstep
