// What a step queues on a GPU: kernels, the bytes that they read and write, operations of products. Counted on a rehearsal, so
// without a GPU, and for sizes that no machine at hand could hold.
//
// Example:
//   const StepWork work = work_of_step(model, plan, step_rows);
//   work.at("mm").calls;
//
// Every op of LibTorch that calls no other is one kernel; views and empty tensors are none. A kernel's bytes are those of its
// tensors, once each, so what a cache saves or a copy costs besides is not in them. What ranks send each other is not counted.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/exec/rehearsal.h"

namespace lockstep {

struct KernelWork {
  int64_t calls = 0;
  double bytes = 0, flops = 0;

  KernelWork& operator+=(const KernelWork& other);
  KernelWork operator-(const KernelWork& other) const;
};

/// By name: "mm", "swiglu", …
using StepWork = std::map<std::string, KernelWork>;

/// Of one step on a GPU: of a plan that trains with its update ("adamw"), else a forward pass. One such call at a time in a process.
StepWork work_of_step(const Model& model, const Plan& plan, const RowsOfStep& rows);

/// What `more` has beside `less`: of a model of one more layer, that layer.
StepWork difference(const StepWork& more, const StepWork& less);
KernelWork sum_of(const StepWork& work);

}  // namespace lockstep
