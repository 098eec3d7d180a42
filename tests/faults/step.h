// One step of a job that looks like training, as a list of parts that a fault can edit: layers are gathered, gradients
// reduced and scattered, small values exchanged. Every result is compared with the value known beforehand.
//
// Example:
//   Script script = usual_step(rank);
//   replace(script, "loss", [](Rank& r) { r.control().all_reduce_max(…); });
//   run_step(script, rank);
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/setup.h"
#include "lockstep/tensor/spec.h"

namespace lockstep::faults {

inline constexpr int64_t kFaultStep = 6;

/// This process in the job.
struct Rank {
  CommSetup& comm;
  int rank = 0, size = 1, culprit = 1;
  std::string folder;  // where the moment of the fault is written
  int64_t step = 0;
  int64_t num_wrong = 0;
  double forward_seconds = 0.002;
  std::function<void()> clean_up{};  // runs when the loop is left, also by an exception
  bool leaves_loop = false;

  Communicator& data() const { return *comm.data; }
  Communicator& control() const { return *comm.control; }
  bool is_culprit() const { return rank == culprit; }
  /// The fault is about to happen: writes the time, once.
  void injects();
  /// Says WRONG when a result is not what it must be.
  void expect(bool right, std::string_view what);
};

using Action = std::function<void(Rank&)>;

struct Part {
  std::string name;
  Phase phase;
  std::string place;
  Action run;
};
using Script = std::vector<Part>;

Script usual_step(Rank& rank);
void run_step(const Script& script, Rank& rank);
/// A nested gather of as many rows as the rank likes, to megabytes: legal, and slow.
void insert_uneven(Script& script, const Rank& rank);

// Edits. A name that is not there is a mistake in the suite, and throws.
void replace(Script& script, std::string_view name, Action action);
void insert_before(Script& script, std::string_view name, Part part);
/// Marks the fault where the part would have been.
void skip(Script& script, std::string_view name);
void swap(Script& script, std::string_view one, std::string_view other);

/// A tensor whose values are all `value`, and the question whether it still is.
Tensor filled(const Shape& shape, double value, Dtype dtype = Dtype::kF32);
bool holds(const Tensor& tensor, double value);

/// 0 + 1 + … over the ranks, each with one more: what a sum of (rank + 1) gives.
double sum_of_ranks(const Rank& rank);

}  // namespace lockstep::faults
