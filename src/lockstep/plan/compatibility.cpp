#include "lockstep/plan/compatibility.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/plan/adapters.h"

namespace lockstep {
namespace {

std::string name_of(Component component) { return std::string(component_name(component)); }

std::string counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string strategy_of(const PlanOptions& options) {
  std::string out =
      fmt::format("{}, {}, {}", options.zero.name(), counted(options.world, "rank"), torch_dtype_name(options.compute));
  if (options.training) out += options.recompute ? ", activations recomputed" : ", activations kept";
  if (options.kept_blocks > 0) out += fmt::format(" but for {}", counted(options.kept_blocks, "block"));
  if (options.placement.num_devices > 1) out += fmt::format(", {} devices a rank", options.placement.num_devices);
  if (options.placement.offload_params) out += ", weights in host memory between uses";
  if (options.placement.offload_optimizer && options.training) out += ", optimizer in host memory";
  return out;
}

ComponentRole role_of(const Plan& plan, Component component) {
  if (!plan.options.training) return ComponentRole::kInUse;
  bool trained = false, frozen = false;
  for (const auto& unit : plan.units) {
    if (unit.component != component) continue;
    (unit.trainable ? trained : frozen) = true;
  }
  if (trained) return frozen ? ComponentRole::kPartlyTrained : ComponentRole::kTrained;
  return ComponentRole::kFrozen;
}

/// What the units of one component cost a rank: the plan's own arithmetic over a part of it.
StateBytes held_by(const Plan& plan, Component component) {
  Plan part{.options = plan.options};
  for (const auto& unit : plan.units) {
    if (unit.component == component) part.units.push_back(unit);
  }
  StateBytes bytes = part.state_bytes();
  bytes.transient = 0;
  return bytes;
}

void refuse(ComponentRow& row, std::string reason) {
  row.findings.push_back({Fit::kRefused, std::move(reason),
                          fmt::format("--no_build {} leaves the component out", component_name(row.component))});
}

/// Incident I4: each block of the component has its step on a device that there is, and each of its parameters a place
/// in a unit that stands there.
void find_unplaced(const Model& model, const Plan& plan, ComponentRow& row) {
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const Block& block = *model.blocks[i];
    if (block.component() != row.component) continue;
    const auto step = std::ranges::find_if(plan.steps, [&](const Step& s) { return s.block == static_cast<int>(i); });
    const size_t placed = step == plan.steps.end() ? 0 : step->params.size();
    size_t wanted = block.params().size();
    for (const AdapterLayout* one : plan.options.all_adapters()) wanted += one->params_of(model, i).size();
    if (step == plan.steps.end() || placed != wanted) {
      refuse(row, fmt::format("block {}: expected a place for each of its {} parameters, found {}", block.name(),
                              wanted, placed));
      continue;
    }
    row.devices.insert(step->device);
    if (step->device < 0 || step->device >= plan.options.placement.num_devices) {
      refuse(row, fmt::format("block {}: expected one of {}, found device {}", block.name(),
                              counted(plan.options.placement.num_devices, "device"), step->device));
    }
    for (const int index : step->units) {
      const Unit& unit = plan.units[static_cast<size_t>(index)];
      if (unit.name != block.name() || unit.device == step->device) continue;
      refuse(row, fmt::format("block {}: expected its weights on device {}, where it runs, found device {}",
                              block.name(), step->device, unit.device));
    }
  }
}

/// What is trained has its optimizer state somewhere, all of it.
void find_stateless(const Plan& plan, ComponentRow& row) {
  for (const auto& unit : plan.units) {
    if (unit.component != row.component || !unit.trainable) continue;
    int64_t placed = 0;
    for (const auto& slice : unit.optimizer) placed += slice.end - slice.begin;
    if (placed == plan.optimised(unit)) continue;
    refuse(row, fmt::format("block {}: expected optimizer state of {} elements, found a place for {}", unit.name,
                            plan.optimised(unit), placed));
  }
}

/// A tensor that blocks of two components use belongs to the one that declares it, and is trained or frozen with it.
void find_shared(const Model& model, const Plan& plan, ComponentRow& row) {
  std::set<std::string> told;
  for (const auto& step : plan.steps) {
    const Block& block = *model.blocks[static_cast<size_t>(step.block)];
    if (block.component() != row.component) continue;
    for (const int index : step.units) {
      const Unit& unit = plan.units[static_cast<size_t>(index)];
      if (unit.component == row.component || !told.insert(unit.name).second) continue;
      row.findings.push_back({Fit::kNote,
                              fmt::format("{} uses weights of {} ({}), which are {} with it", block.name(), unit.name,
                                          component_name(unit.component), unit.trainable ? "trained" : "frozen"),
                              ""});
    }
  }
}

void find_notes(const Plan& plan, ComponentRow& row) {
  const auto note = [&](std::string reason, std::string cure = {}) {
    row.findings.push_back({Fit::kNote, std::move(reason), std::move(cure)});
  };
  if (row.role == ComponentRole::kFrozen && row.tensors > 0) {
    if (plan.gathers()) note("frozen and sharded: gathered for each use, like what is trained");
    if (!plan.options.frozen.contains(row.component) && !plan.options.adapters)
      note("--freeze_parameters freezes all of it");
  }
  if (row.role == ComponentRole::kPartlyTrained && !plan.options.adapters) {
    note("--freeze_parameters freezes part of it");
  }
}

ComponentRow built_row(const Model& model, const Plan& plan, Component component) {
  ComponentRow row{.component = component, .role = role_of(plan, component)};
  row.blocks = std::ranges::count_if(model.blocks, [&](const auto& b) { return b->component() == component; });
  for (const auto& unit : plan.units) {
    if (unit.component != component) continue;
    row.params += unit.used_numel();
    row.weight_bytes += unit.quantised ? unit.quantised->bytes : unit.used_numel() * dtype_bytes(unit.dtype);
    for (const auto& placed : unit.params) row.tensors += static_cast<int64_t>(placed.spec.sources.size());
  }
  row.held = held_by(plan, component);
  find_unplaced(model, plan, row);
  find_stateless(plan, row);
  find_shared(model, plan, row);
  find_notes(plan, row);
  return row;
}

ComponentRow left_out_row(const LeftOut& left, const PlanOptions& options) {
  ComponentRow row{.component = left.component, .role = ComponentRole::kNotBuilt, .blocks = left.blocks};
  for (const auto& tensor : left.tensors) row.params += numel_of(tensor.shape);
  row.tensors = static_cast<int64_t>(left.tensors.size());
  row.weight_bytes = row.params * dtype_bytes(options.compute);
  const std::string why = left.by.empty()       ? "it has nothing to read without what --no_build names"
                          : left.by == kNoBuild ? "--no_build names it"
                                                : left.by + " leaves it out";
  row.findings.push_back(
      {Fit::kNote, fmt::format("{}; a checkpoint that is saved keeps its tensors as they are", why), ""});
  return row;
}

/// In which components were asked to be left out.
std::vector<std::string> ways_of(const Model& model) {
  std::vector<std::string> ways;
  for (const auto& left : model.left_out) {
    if (!left.by.empty() && std::ranges::find(ways, left.by) == ways.end()) ways.push_back(left.by);
  }
  return ways;
}

std::string fit_name(Fit fit) { return fit == Fit::kRefused ? "refused" : fit == Fit::kNote ? "note" : "ok"; }

std::string told(const Finding& finding) {
  return finding.cure.empty() ? finding.reason : fmt::format("{} ({})", finding.reason, finding.cure);
}

}  // namespace

std::string_view role_name(ComponentRole role) {
  switch (role) {
    case ComponentRole::kTrained:
      return "trained";
    case ComponentRole::kPartlyTrained:
      return "trained in part";
    case ComponentRole::kFrozen:
      return "frozen";
    case ComponentRole::kInUse:
      return "in use";
    case ComponentRole::kNotBuilt:
      return "not built";
  }
  return "?";
}

Fit ComponentRow::fit() const {
  Fit worst = Fit::kOk;
  for (const auto& finding : findings) worst = std::max(worst, finding.fit);
  return worst;
}

Compatibility compatibility(const Model& model, const Plan& plan) {
  Compatibility table{.strategy = strategy_of(plan.options), .rows = {}};
  for (const Component component : components_of(model)) table.rows.push_back(built_row(model, plan, component));
  for (const auto& left : model.left_out) table.rows.push_back(left_out_row(left, plan.options));
  return table;
}

void Compatibility::require() const {
  std::vector<std::string> reasons, cures;
  for (const auto& row : rows) {
    for (const auto& finding : row.findings) {
      if (finding.fit != Fit::kRefused) continue;
      reasons.push_back(fmt::format("{}: {}", component_name(row.component), finding.reason));
      if (std::ranges::find(cures, finding.cure) == cures.end()) cures.push_back(finding.cure);
    }
  }
  if (!reasons.empty()) throw usage_error(fmt::format("{}: {}", strategy, join(reasons, "; ")), join(cures, "; "));
}

std::string Compatibility::print() const {
  std::string out =
      fmt::format("Components under {}:\n  {:<10} {:<15} {:>6} {:>7} {:>8} {:>12} {:>12}  {}\n", strategy, "component",
                  "role", "blocks", "tensors", "params", "weights", "a rank holds", "verdict");
  for (const auto& row : rows) {
    out += fmt::format("  {:<10} {:<15} {:>6} {:>7} {:>8} {:>12} {:>12}  {}\n", component_name(row.component),
                       role_name(row.role), row.blocks, row.tensors, format_count(row.params),
                       format_bytes(row.weight_bytes), format_bytes(row.held.total()), fit_name(row.fit()));
    if (row.devices.size() > 1 || (!row.devices.empty() && *row.devices.rbegin() > 0)) {
      std::vector<std::string> numbers;
      for (const int device : row.devices) numbers.push_back(std::to_string(device));
      out += fmt::format("  {:<10} on device{} {}\n", "", numbers.size() > 1 ? "s" : "", join(numbers, ", "));
    }
    for (const auto& finding : row.findings) {
      out += fmt::format("  {:<10} {}: {}\n", "", fit_name(finding.fit), told(finding));
    }
  }
  return out;
}

Json Compatibility::json() const {
  Json list = Json::array();
  for (const auto& row : rows) {
    Json findings = Json::array();
    for (const auto& finding : row.findings) {
      findings.push_back({{"verdict", fit_name(finding.fit)}, {"reason", finding.reason}, {"cure", finding.cure}});
    }
    list.push_back({{"component", name_of(row.component)},
                    {"role", std::string(role_name(row.role))},
                    {"verdict", fit_name(row.fit())},
                    {"blocks", row.blocks},
                    {"tensors", row.tensors},
                    {"params", row.params},
                    {"weight_bytes", row.weight_bytes},
                    {"devices", row.devices},
                    {"held",
                     {{"params", row.held.params},
                      {"master", row.held.master},
                      {"optimizer", row.held.optimizer},
                      {"gradients", row.held.gradients},
                      {"total", row.held.total()}}},
                    {"findings", findings}});
  }
  return list;
}

std::string left_out_reason(const Model& model) {
  std::vector<Component> all, named;
  std::vector<std::string> ways;
  for (const auto& left : model.left_out) {
    all.push_back(left.component);
    if (left.by == kNoBuild) named.push_back(left.component);
  }
  if (all.empty()) return {};
  for (const auto& way : ways_of(model)) ways.push_back(way == kNoBuild ? way + " " + names_of(named, ",") : way);
  return fmt::format("{} {} not built ({})", names_of(all, " and "), all.size() > 1 ? "are" : "is", join(ways, ", "));
}

std::string left_out_cure(const Model& model) { return fmt::format("leave {} out", join(ways_of(model), " and ")); }

}  // namespace lockstep
