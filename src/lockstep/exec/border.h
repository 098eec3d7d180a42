// Where tensors cross from device to device: at the borders that the Plan names, and nowhere else. What stands
// elsewhere when a block begins is an error that names block, tensor, both devices, and who made it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/model/model.h"
#include "lockstep/plan/plan.h"
#include "lockstep/tensor/devices.h"

namespace lockstep {

/// A tensor that went from one device to another. Seconds: until the host could go on.
struct Crossing {
  std::string slot, block;  // of the flow, and who reads (or, on the way back, made) it
  std::string from, to;
  int64_t bytes = 0;
  double seconds = 0;
  bool gradient = false;
};

/// Who looks at the executor's work; empty ones are not called.
struct ExecutorHooks {
  std::function<void(const Crossing&)> crossed;
  std::function<void()> synchronize;  // after each block: waits for the devices, so that errors show where they arise
  std::function<void(const Step&, MemoryPhase)> stands;    // before each block
  std::function<void(const Step&, const Flow& in)> reads;  // what it is given, where it stands
};

class Border {
 public:
  Border(const Model& model, const Plan& plan, const Devices& devices);

  void watch(ExecutorHooks hooks) { hooks_ = std::move(hooks); }

  /// Moves the slots that the plan lets arrive at this step; the flow holds the copies from then on.
  void arrive(const Step& step, Flow& flow) const;
  /// The same of what says which adapter rows take.
  void arrive(const Step& step, AdapterRows& rows) const;
  /// A gradient on its way back to the step that made `slot`.
  Tensor return_to(const Step& step, const std::string& slot, const Tensor& gradient) const;

  /// Throws InternalError naming the first tensor that is not where the plan wants it.
  void check_inputs(const Step& step, const Flow& in, const std::vector<Tensor>& params) const;
  void check_outputs(const Step& step, const Flow& out) const;
  void block_reads(const Step& step, const Flow& in) const {
    if (hooks_.reads) hooks_.reads(step, in);
  }
  void block_begins(const Step& step, MemoryPhase phase) const {
    if (hooks_.stands) hooks_.stands(step, phase);
  }
  void block_done() const {
    if (hooks_.synchronize) hooks_.synchronize();
  }

 private:
  Tensor move(const Tensor& tensor, int device, Crossing what) const;
  void check_stands(const Step& step, const std::string& what, const Tensor& tensor, const std::string& maker) const;
  std::string maker_of(const Step& step, const std::string& slot) const;

  const Model& model_;
  const Plan& plan_;
  Devices devices_;
  ExecutorHooks hooks_;
};

}  // namespace lockstep
