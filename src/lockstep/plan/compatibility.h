// Every component of a model against the strategy that was chosen: what it would hold, and whether it can run so.
//
// Pure, from declarations alone: it runs before any weight is read, on every verb. Incident I4 was a component that was
// built, never placed, and only found when a tensor stood on the wrong device.
//
// Example:
//   const Compatibility table = compatibility(model, make_plan(model, options));
//   std::cout << table.print();
//   table.require();                     // throws with everything that is refused
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

/// kInUse: nothing is trained at all.
enum class ComponentRole { kTrained, kPartlyTrained, kFrozen, kInUse, kNotBuilt };
std::string_view role_name(ComponentRole role);  // "trained", "trained in part", "frozen", "in use", "not built"

/// Whether a component runs under the strategy.
enum class Fit { kOk, kNote, kRefused };

/// A sentence about a component, and what to do where there is something to do.
struct Finding {
  Fit fit = Fit::kOk;
  std::string reason, cure;
};

struct ComponentRow {
  Component component = Component::kLlm;
  ComponentRole role = ComponentRole::kTrained;
  int64_t blocks = 0, tensors = 0, params = 0;
  int64_t weight_bytes = 0;  // of its tensors once, in the dtype of the computation
  StateBytes held;           // by each rank, without `transient`; nothing when it is not built
  std::set<int> devices;     // of its blocks, among those that a rank drives
  std::vector<Finding> findings;
  Fit fit() const;  // the worst of its findings
};

struct Compatibility {
  std::string strategy;  // "zero3, 2 ranks, bfloat16, recompute"
  std::vector<ComponentRow> rows;

  std::string print() const;
  Json json() const;
  /// Throws UserError(kUsage) with every refusal and its cure; nothing is refused: returns.
  void require() const;
};

/// Of a plan that was made for `model`.
Compatibility compatibility(const Model& model, const Plan& plan);

/// "vision is not built (--no_build vision)"; empty when everything is built.
std::string left_out_reason(const Model& model);
/// "leave --no_build out".
std::string left_out_cure(const Model& model);

}  // namespace lockstep
