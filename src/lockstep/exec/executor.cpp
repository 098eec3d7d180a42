#include "lockstep/exec/executor.h"

#include <algorithm>
#include <array>
#include <map>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

Flow detached(const Flow& flow) {
  Flow out;
  for (const auto& [slot, value] : flow.entries()) out.set(slot, value.detach());
  return out;
}

/// The block's inputs, cut from the graph of what made them; those that need a gradient become leaves.
Flow cut_inputs(const Flow& flow, const Block& block, const Step& step, bool training) {
  Flow in = detached(flow.pick(block.reads()));
  if (!training) return in;
  for (const auto& slot : step.grad_inputs) {
    if (const Tensor* value = in.find(slot)) value->set_requires_grad(true);
  }
  return in;
}

void add_edge(Flow& edges, const std::string& slot, const Tensor& grad) {
  if (!grad.defined()) return;
  const Tensor* held = edges.find(slot);
  edges.set(slot, held == nullptr ? grad : held->add(grad));
}

/// Which slots each block is the last to read.
std::vector<std::vector<std::string>> last_reads(const Model& model) {
  std::map<std::string, size_t> last;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    for (const auto& slot : model.blocks[i]->reads()) last[slot] = i;
  }
  std::vector<std::vector<std::string>> by_block(model.blocks.size());
  for (const auto& [slot, block] : last) by_block[block].push_back(slot);
  return by_block;
}

}  // namespace

Executor::Executor(const Model& model, const Plan& plan, ParamStore& store, Communicator& comm)
    : model_(model),
      plan_(plan),
      residency_(store, comm),
      grads_(store, comm),
      recorder_(comm.recorder()),
      last_reads_(last_reads(model)) {}

std::vector<const Step*> Executor::active_steps(Presence anywhere) const {
  std::vector<const Step*> steps;
  for (const auto& step : plan_.steps) {
    if (anywhere.has(step.modality)) steps.push_back(&step);
  }
  return steps;
}

const Block& Executor::block_of(const Step& step) const { return *model_.blocks[static_cast<size_t>(step.block)]; }

/// Pixels, features of a tower and the like do not outlive the block that needs them.
void Executor::drop_unread(Flow& flow, const Step& step) const {
  for (const auto& slot : last_reads_[static_cast<size_t>(step.block)]) flow.erase(slot);
}

Flow Executor::run(const Step& step, const Lease& lease, const Flow& in, const Context& context, bool record) const {
  const Block& block = block_of(step);
  const at::AutoGradMode grad_mode(record);
  const auto tensors = lease.params();
  try {
    return block.forward(Params(block.params(), tensors), in, context);
  } catch (Error& e) {
    e.add_frame("in block " + block.name());
    throw;
  }
}

Flow Executor::forward(Flow inputs, const Context& context, Presence here, Presence anywhere) {
  if (!here.rows) {
    forward({}, anywhere);
    return {};
  }
  std::array<Part, 1> part{{{std::move(inputs), context, here.image}}};
  forward(part, anywhere);
  return std::move(part[0].flow);
}

void Executor::forward(std::span<Part> parts, Presence anywhere, Extent extent) {
  auto steps = active_steps(anywhere);
  if (extent == Extent::kInputs) std::erase_if(steps, [&](const Step* s) { return s->block >= model_.input_blocks; });
  for (size_t k = 0; k < steps.size(); ++k) {
    const Step& step = *steps[k];
    const Block& block = block_of(step);
    recorder_.stand_at(block.name());
    const Lease lease = residency_.borrow(step);
    if (k + 1 < steps.size()) residency_.prefetch(*steps[k + 1]);
    for (auto& part : parts) {  // none: others run it, we only lend our shards
      if (step.modality == Modality::kImage && !part.image) continue;
      Flow made = run(step, lease, part.flow.pick(block.reads()), part.context, /*record=*/false);
      drop_unread(part.flow, step);
      part.flow.put(std::move(made));
    }
  }
}

TrainOutput Executor::train(Flow inputs, const Context& context, Presence here, Presence anywhere) {
  const auto steps = active_steps(anywhere);
  std::vector<Taped> tape(steps.size());
  Flow flow = std::move(inputs);
  Lease last;
  recorder_.enter_phase(Phase::kForward);
  for (size_t k = 0; k < steps.size(); ++k) {
    const Step& step = *steps[k];
    recorder_.stand_at(block_of(step).name());
    Lease lease = residency_.borrow(step);
    if (k + 1 < steps.size()) residency_.prefetch(*steps[k + 1]);
    if (here.has(step.modality)) {
      Flow in = cut_inputs(flow, block_of(step), step, step.backward);
      Flow out = run(step, lease, in, context, step.backward && !step.recompute);
      drop_unread(flow, step);
      flow.put(detached(out));
      if (step.backward) tape[k] = {std::move(in), step.recompute ? Flow{} : std::move(out), true};
    }
    if (k + 1 == steps.size()) last = std::move(lease);  // its backward comes at once
  }
  TrainOutput output;
  if (here.rows) output = {flow["loss"], flow["correct"]};
  flow = {};
  backward(steps, tape, std::move(last), context, here.rows);
  return output;
}

void Executor::backward(const std::vector<const Step*>& steps, std::vector<Taped>& tape, Lease last,
                        const Context& context, bool has_loss) {
  std::vector<size_t> order;
  for (size_t k = steps.size(); k-- > 0;) {
    if (steps[k]->backward) order.push_back(k);
  }
  Flow edges;
  if (has_loss) edges.set("loss", tape.back().out["loss"].detach().clone().fill_(1.0));
  Lease lease = std::move(last);
  recorder_.enter_phase(Phase::kBackward);
  for (size_t i = 0; i < order.size(); ++i) {
    const Step& step = *steps[order[i]];
    recorder_.stand_at(block_of(step).name());
    if (i > 0) lease = residency_.borrow(step);
    if (i + 1 < order.size()) residency_.prefetch(*steps[order[i + 1]]);
    Taped& taped = tape[order[i]];
    std::vector<Tensor> param_grads;
    if (taped.ran) {
      if (step.recompute) taped.out = run(step, lease, taped.in, context, /*record=*/true);
      param_grads = differentiate(step, taped, lease, edges);
      taped = {};
    }
    lease.release();
    reduce(step, param_grads);
  }
  grads_.finish_micro_batch();
}

std::vector<Tensor> Executor::differentiate(const Step& step, const Taped& taped, const Lease& lease,
                                            Flow& edges) const {
  std::vector<Tensor> outputs, output_grads, wanted;
  for (const auto& [slot, value] : taped.out.entries()) {
    const Tensor* grad = edges.find(slot);
    if (grad == nullptr || !value.requires_grad()) continue;
    outputs.push_back(value);
    output_grads.push_back(*grad);
  }
  for (const auto& slot : block_of(step).writes()) edges.erase(slot);
  std::vector<const std::string*> slots;
  for (const auto& slot : step.grad_inputs) {
    if (const Tensor* value = taped.in.find(slot)) {
      slots.push_back(&slot);
      wanted.push_back(*value);
    }
  }
  const auto params = lease.params();
  std::vector<Tensor> param_grads(params.size());
  std::vector<size_t> trained;
  for (size_t p = 0; p < params.size(); ++p) {
    if (!params[p].requires_grad()) continue;
    trained.push_back(p);
    wanted.push_back(params[p]);
  }
  if (outputs.empty() || wanted.empty()) return param_grads;
  auto grads = torch::autograd::grad(outputs, wanted, output_grads, /*retain_graph=*/false, /*create_graph=*/false,
                                     /*allow_unused=*/true);
  for (size_t i = 0; i < slots.size(); ++i) add_edge(edges, *slots[i], grads[i]);
  for (size_t i = 0; i < trained.size(); ++i) param_grads[trained[i]] = std::move(grads[slots.size() + i]);
  return param_grads;
}

void Executor::reduce(const Step& step, const std::vector<Tensor>& param_grads) {
  for (const int index : step.units) {
    const Unit& unit = plan_.units[static_cast<size_t>(index)];
    if (!unit.trainable) continue;
    std::vector<Tensor> grads(param_grads.empty() ? 0 : unit.params.size());
    for (size_t p = 0; p < param_grads.size(); ++p) {
      if (step.params[p].unit == index) grads[static_cast<size_t>(step.params[p].index)] = param_grads[p];
    }
    grads_.add(index, grads);
  }
}

}  // namespace lockstep
