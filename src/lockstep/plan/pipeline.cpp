#include "lockstep/plan/pipeline.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// What one stage does, in its own order.
std::vector<PipelineOp> ops_of_stage(int stage, int stages, int micro_batches) {
  std::vector<PipelineOp> ops;
  ops.reserve(2 * static_cast<size_t>(micro_batches));
  const int warm_up = micro_batches_in_flight(stage, stages, micro_batches) - 1;
  for (int m = 0; m < warm_up; ++m) ops.push_back({stage, m, Pass::kForward});
  for (int m = 0; m < micro_batches; ++m) {
    if (m + warm_up < micro_batches) ops.push_back({stage, m + warm_up, Pass::kForward});
    ops.push_back({stage, m, Pass::kBackward});
  }
  return ops;
}

/// Runs the queues in rounds: a stage does its next op in the first round after those that the op depends on.
class Rounds {
 public:
  explicit Rounds(std::vector<std::vector<PipelineOp>> queues)
      : queues_(std::move(queues)), next_(queues_.size(), 0), done_(queues_.size()) {}

  std::vector<PipelineOp> run() {
    std::vector<PipelineOp> order;
    for (;;) {
      const size_t before = order.size();
      add_round(order);
      for (size_t i = before; i < order.size(); ++i) ++count(order[i].stage, order[i].pass);
      if (order.size() == before) break;
    }
    for (size_t s = 0; s < queues_.size(); ++s)
      check(next_[s] == queues_[s].size(), "a pipeline that waits for itself");
    return order;
  }

 private:
  struct Done {
    int forwards = 0, backwards = 0;
  };

  int& count(int stage, Pass pass) {
    Done& done = done_[static_cast<size_t>(stage)];
    return pass == Pass::kForward ? done.forwards : done.backwards;
  }

  bool ready(const PipelineOp& op) {
    const int source = op.pass == Pass::kForward ? op.stage - 1 : op.stage + 1;
    if (source < 0 || source == static_cast<int>(queues_.size())) return true;
    return count(source, op.pass) > op.micro_batch;
  }

  void add_round(std::vector<PipelineOp>& order) {
    for (size_t s = queues_.size(); s-- > 0;) {
      if (next_[s] == queues_[s].size() || !ready(queues_[s][next_[s]])) continue;
      order.push_back(queues_[s][next_[s]++]);
    }
  }

  std::vector<std::vector<PipelineOp>> queues_;
  std::vector<size_t> next_;
  std::vector<Done> done_;  // of the rounds before this one
};

}  // namespace

int micro_batches_in_flight(int stage, int stages, int micro_batches) {
  check(stage >= 0 && stage < stages && micro_batches > 0, "a stage of a pipeline with at least one micro-batch");
  return std::min(stages - stage, micro_batches);
}

std::vector<PipelineOp> one_f_one_b(int stages, int micro_batches) {
  std::vector<std::vector<PipelineOp>> queues;
  queues.reserve(static_cast<size_t>(stages));
  for (int s = 0; s < stages; ++s) queues.push_back(ops_of_stage(s, stages, micro_batches));
  return Rounds(std::move(queues)).run();
}

}  // namespace lockstep
