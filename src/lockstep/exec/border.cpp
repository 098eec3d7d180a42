#include "lockstep/exec/border.h"

#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// How rows, pictures and sound are cut, and which labels count, is read by the host, wherever they are (model/model.h).
bool stays_on_host(const std::string& slot) {
  return slot.ends_with("labels") || slot.ends_with("_ends") || slot.ends_with("_grid") || slot.ends_with("_frames") ||
         slot == "grid_thw";
}

std::string name_of_place(const Tensor& tensor) {
  const auto memory = DeviceMemory::of(tensor);
  return memory ? memory->name() : tensor.device().str();
}

}  // namespace

Border::Border(const Model& model, const Plan& plan, const Devices& devices)
    : model_(model), plan_(plan), devices_(devices) {}

Tensor Border::move(const Tensor& tensor, int device, Crossing what) const {
  const auto& there = devices_.at(device);
  if (DeviceMemory::of(tensor) == there) return tensor;
  if (!hooks_.crossed) return move_to(tensor, there);
  const auto begun = Clock::now();
  Tensor moved = move_to(tensor, there);
  what.from = name_of_place(tensor);
  what.to = there->name();
  what.bytes = static_cast<int64_t>(tensor.nbytes());
  what.seconds = seconds_since(begun);
  hooks_.crossed(what);
  return moved;
}

void Border::arrive(const Step& step, Flow& flow) const {
  for (const auto& slot : step.arrivals) {
    const Tensor* value = flow.find(slot);
    if (value == nullptr || stays_on_host(slot)) continue;
    const std::string& block = model_.blocks[static_cast<size_t>(step.block)]->name();
    flow.set(slot, move(*value, step.device, {.slot = slot, .block = block, .from = {}, .to = {}}));
  }
}

void Border::arrive(const Step& step, AdapterRows& rows) const {
  const std::string& block = model_.blocks[static_cast<size_t>(step.block)]->name();
  for (auto& one : rows.rows)
    one = move(one, step.device, {.slot = "adapter_rows", .block = block, .from = {}, .to = {}});
}

Tensor Border::return_to(const Step& step, const std::string& slot, const Tensor& gradient) const {
  const std::string& block = model_.blocks[static_cast<size_t>(step.block)]->name();
  return move(gradient, step.device, {.slot = slot, .block = block, .from = {}, .to = {}, .gradient = true});
}

std::string Border::maker_of(const Step& step, const std::string& slot) const {
  for (auto before = static_cast<int64_t>(&step - plan_.steps.data()) - 1; before >= 0; --before) {
    const Step& other = plan_.steps[static_cast<size_t>(before)];
    const Block& block = *model_.blocks[static_cast<size_t>(other.block)];
    if (std::find(block.writes().begin(), block.writes().end(), slot) == block.writes().end()) continue;
    return fmt::format("{} on {}", block.name(), devices_.at(other.device)->name());
  }
  return "the batch";
}

void Border::check_stands(const Step& step, const std::string& what, const Tensor& tensor,
                          const std::string& maker) const {
  const auto& wanted = devices_.at(step.device);
  const auto found = DeviceMemory::of(tensor);
  if (found == wanted || !tensor.defined()) return;
  if (!found && wanted == devices_.host && tensor.is_cpu()) return;  // borrowed memory of the host
  const std::string& block = model_.blocks[static_cast<size_t>(step.block)]->name();
  throw InternalError(fmt::format("block {}: {} ({}) stands on {}, expected {}; it was made by {}", block, what,
                                  spec_of(tensor, "").describe(), name_of_place(tensor), wanted->name(), maker),
                      std::source_location::current());
}

void Border::check_inputs(const Step& step, const Flow& in, const std::vector<Tensor>& params) const {
  for (const auto& [slot, value] : in.entries()) {
    if (DeviceMemory::of(value) == devices_.at(step.device) || stays_on_host(slot)) continue;
    check_stands(step, "input \"" + slot + "\"", value, maker_of(step, slot));
  }
  const auto& specs = model_.blocks[static_cast<size_t>(step.block)]->params();
  for (size_t p = 0; p < params.size(); ++p) {
    if (DeviceMemory::of(params[p]) == devices_.at(step.device)) continue;
    check_stands(step, p < specs.size() ? "parameter " + specs[p].local : "an adapter", params[p],
                 "the parameter store");
  }
}

void Border::check_outputs(const Step& step, const Flow& out) const {
  for (const auto& [slot, value] : out.entries()) {
    if (DeviceMemory::of(value) == devices_.at(step.device) || stays_on_host(slot)) continue;
    check_stands(step, "output \"" + slot + "\"", value,
                 model_.blocks[static_cast<size_t>(step.block)]->name() + " itself");
  }
}

}  // namespace lockstep
