// What each block costs the device that runs it, measured while an executor runs all of them on one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/exec/border.h"
#include "lockstep/plan/block_cost.h"

namespace lockstep {

/// Listens to the executor: what each block leaves behind for the way back, and the most that is alive while it runs.
///
/// What one block alone makes of another's result is kept for the reader: where a border is between them, the reader's device has
/// the copy, and the writer's has it no longer. On one device it comes to the same.
class CostMeter {
 public:
  /// `costs`: one for each block, whose `saved` and `work` are raised to what is seen.
  CostMeter(const Model& model, const Plan& plan, DeviceMemory& device, std::vector<BlockCost>& costs);

  ExecutorHooks hooks();
  /// Another pass over the blocks, or the end of the last: what they leave behind is counted anew, and the more of both is what they cost.
  void next_pass();

 private:
  /// A result, until another takes its slot.
  struct Passed {
    size_t writer = 0;
    bool writer_keeps = false;  // it needs it for its own way back
    int reader = -1;
    bool several = false;  // read by several blocks: who has it depends on where they stand
    int64_t bytes = 0;
  };

  void begins(const Step& step, MemoryPhase phase);
  int64_t waiting_elsewhere(const Step& step) const;
  void reads(const Step& step, const Flow& in);
  void ends(bool pass_is_over);
  void note_writes();
  void settle();

  const Model& model_;
  DeviceMemory& device_;
  std::vector<BlockCost>& costs_;
  int64_t state_, gradients_;              // before the first pass
  std::map<int, int64_t> tied_gradients_;  // of weights that several blocks use, by the block that owns them
  int64_t waiting_ = 0;                    // of those, while this block runs
  const Step* running_ = nullptr;
  bool on_way_back_ = false;
  int64_t alive_ = 0;                                 // behind the last block that ran forward
  std::vector<int64_t> alive_behind_, saved_, work_;  // of this pass, by block
  std::vector<Passed> passed_;
  std::map<std::string, size_t, std::less<>> standing_;  // slot: which of those
};

}  // namespace lockstep
