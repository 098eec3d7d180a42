// In which order the stages of a pipeline run their micro-batches: one forward, one backward (1F1B). Numbers alone.
//
// Example:
//   for (const PipelineOp& op : one_f_one_b(4, 8)) op.pass == Pass::kForward ? forward(op) : backward(op);
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

enum class Pass : uint8_t { kForward, kBackward };

/// A stage runs one micro-batch one way.
struct PipelineOp {
  int stage = 0, micro_batch = 0;
  Pass pass = Pass::kForward;
  bool operator==(const PipelineOp&) const = default;
};

/// How many micro-batches stage `stage` of `stages` has begun and not yet finished, at most: a stage near the end waits
/// less long for its backwards.
int micro_batches_in_flight(int stage, int stages, int micro_batches);

/// The issue order of all stages for one thread that drives every device. A stage warms up with the forwards that the
/// stages behind it need before the first backward can come, then alternates one forward and one backward, then drains;
/// its backwards come in the order of the micro-batches. An op stands behind all that it depends on: the forward of the
/// stage before, the backward of the stage behind. Ops that could run at the same time stand next to each other, later
/// stages first. Source: PipeDream-Flush (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training").
std::vector<PipelineOp> one_f_one_b(int stages, int micro_batches);

}  // namespace lockstep
