#include "lockstep/exec/executor.h"

#include <algorithm>
#include <array>
#include <map>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interruption.h"
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
  edges.set(slot, held == nullptr ? grad : held->add(move_to(grad, DeviceMemory::of(*held))));
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
      store_(store),
      residency_(store, comm),
      grads_(store, comm),
      recorder_(comm.recorder()),
      border_(model, plan, store.devices()),
      stages_(stages_of(plan)),
      last_reads_(last_reads(model)) {}

std::vector<const Step*> Executor::active_steps(Modalities anywhere, size_t begin, size_t end) const {
  std::vector<const Step*> steps;
  for (size_t i = begin; i < end; ++i) {
    if (anywhere.meets(plan_.steps[i].runs_on)) steps.push_back(&plan_.steps[i]);
  }
  return steps;
}

void Executor::stand_at(MemoryPhase phase, const Step& step) const {
  interruption_point();
  const std::string& name = block_of(step).name();
  recorder_.stand_at(name);
  memory_stands_at(phase, name);
  border_.block_begins(step, phase);
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
  border_.check_inputs(step, in, tensors);
  border_.block_reads(step, in);
  try {
    Flow out = block.forward(Params(block.params(), tensors, &step.adapted, &context), in, context);
    border_.check_outputs(step, out);
    border_.block_done();
    return out;
  } catch (Error& e) {
    e.add_frame("in block " + block.name());
    throw;
  }
}

Flow Executor::forward(Flow inputs, const Context& context, Modalities here, Modalities anywhere) {
  if (here.empty()) {
    forward({}, anywhere);
    return {};
  }
  std::array<SubBatch, 1> part{{{std::move(inputs), context, here}}};
  forward(part, anywhere);
  return std::move(part[0].flow);
}

void Executor::forward(std::span<SubBatch> parts, Modalities anywhere, Extent extent) {
  auto steps = active_steps(anywhere, 0, plan_.steps.size());
  if (extent == Extent::kInputs) std::erase_if(steps, [&](const Step* s) { return s->block >= model_.input_blocks; });
  std::vector<MediaTrace> traces;
  for (const auto& part : parts) traces.emplace_back(part.media_slots, part.media);
  for (size_t k = 0; k < steps.size(); ++k) {
    const Step& step = *steps[k];
    const Block& block = block_of(step);
    const OnDevice scope(store_.devices().at(step.device));
    stand_at(MemoryPhase::kEvaluate, step);
    const Lease lease = residency_.borrow(step);
    if (k + 1 < steps.size()) residency_.prefetch(*steps[k + 1]);
    for (size_t p = 0; p < parts.size(); ++p) {  // none: others run it, we only lend our shards
      SubBatch& part = parts[p];
      if (!part.modalities.meets(step.runs_on)) continue;
      if (traces[p].skips(index_of(step), block, part.flow)) {
        drop_unread(part.flow, step);
        continue;
      }
      border_.arrive(step, part.flow);
      if (part.context.adapter_rows) border_.arrive(step, *part.context.adapter_rows);
      Flow made = run(step, lease, part.flow.pick(block.reads()), part.context, /*record=*/false);
      drop_unread(part.flow, step);
      part.flow.put(std::move(made));
    }
  }
  for (size_t p = 0; p < parts.size(); ++p) parts[p].media = traces[p].outputs();
}

TrainOutput Executor::train(Flow inputs, const Context& context, Modalities here, Modalities anywhere) {
  std::array<TrainInput, 1> window{{{std::move(inputs), context, here, anywhere}}};
  return train(window);
}

TrainOutput Executor::train(std::span<TrainInput> window) {
  std::vector<UnderWay> batches;
  for (auto& input : window) {
    if (input.anywhere.empty()) continue;
    UnderWay batch;
    batch.input = &input;
    batch.number = batches.size();
    batches.push_back(std::move(batch));
  }
  TrainOutput sum;
  if (batches.empty()) return sum;
  const auto add = [](Tensor& to, const Tensor& value) {
    if (value.defined()) to.defined() ? to.add_(value) : to = value.clone();
  };
  for (const auto& op : one_f_one_b(static_cast<int>(stages_.size()), static_cast<int>(batches.size()))) {
    UnderWay& batch = batches[static_cast<size_t>(op.micro_batch)];
    const auto stage = static_cast<size_t>(op.stage);
    if (op.pass == Pass::kForward) {
      forward_stage(batch, stage);
      continue;
    }
    backward_stage(batch, stage);
    if (stage > 0) continue;
    grads_.finish_micro_batch(batch.number);
    add(sum.loss, batch.output.loss);
    add(sum.correct, batch.output.correct);
    add(sum.speech_loss, batch.output.speech_loss);
    batch = {};
  }
  return sum;
}

void Executor::forward_stage(UnderWay& batch, size_t stage) {
  const TrainInput& input = *batch.input;
  const StageRange range = stages_[stage];
  const OnDevice scope(store_.devices().at(range.device));
  if (stage == 0) {
    batch.tape.resize(plan_.steps.size());
    batch.flow = std::move(batch.input->flow);
  }
  const auto steps = active_steps(input.anywhere, range.begin, range.end);
  recorder_.enter_phase(Phase::kForward);
  for (size_t k = 0; k < steps.size(); ++k) {
    const Step& step = *steps[k];
    stand_at(MemoryPhase::kForward, step);
    Lease lease = residency_.borrow(step);
    if (k + 1 < steps.size()) residency_.prefetch(*steps[k + 1]);
    if (input.here.meets(step.runs_on)) {
      border_.arrive(step, batch.flow);
      Flow in = cut_inputs(batch.flow, block_of(step), step, step.backward);
      Flow out = run(step, lease, in, input.context, step.backward && !step.recompute);
      drop_unread(batch.flow, step);
      batch.flow.put(detached(out));
      if (step.backward) batch.tape[index_of(step)] = {std::move(in), step.recompute ? Flow{} : std::move(out), true};
    }
    if (&step == &plan_.steps.back()) batch.last = std::move(lease);
  }
  if (stage + 1 < stages_.size()) return;
  if (!input.here.empty()) {
    const Tensor* speech_loss = batch.flow.find("speech_loss");
    batch.output = {batch.flow["loss"], batch.flow["correct"], speech_loss != nullptr ? *speech_loss : Tensor()};
    for (const char* slot : {"loss", "speech_loss"}) {  // of each head; what is optimised is their sum
      if (const Tensor* loss = batch.flow.find(slot)) batch.edges.set(slot, loss->clone().fill_(1.0));
    }
  }
  batch.flow = {};
}

void Executor::backward_stage(UnderWay& batch, size_t stage) {
  const StageRange range = stages_[stage];
  const OnDevice scope(store_.devices().at(range.device));
  auto steps = active_steps(batch.input->anywhere, range.begin, range.end);
  std::erase_if(steps, [](const Step* step) { return !step->backward; });
  std::reverse(steps.begin(), steps.end());
  recorder_.enter_phase(Phase::kBackward);
  Lease lease = std::move(batch.last);
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = *steps[i];
    stand_at(MemoryPhase::kBackward, step);
    if (&step != &plan_.steps.back()) lease = residency_.borrow(step);
    if (i + 1 < steps.size()) residency_.prefetch(*steps[i + 1]);
    run_back(batch, step, lease);
  }
}

void Executor::run_back(UnderWay& batch, const Step& step, Lease& lease) {
  Taped& taped = batch.tape[index_of(step)];
  std::vector<Tensor> param_grads;
  if (taped.ran) {
    if (step.recompute) {
      Context again = batch.input->context;
      again.gradients_only = !again.tap;
      taped.out = run(step, lease, taped.in, again, /*record=*/true);
    }
    param_grads = differentiate(step, taped, lease, batch.edges);
    taped = {};
    border_.block_done();
  }
  lease.release();
  reduce(step, param_grads, batch.number);
}

std::vector<Tensor> Executor::differentiate(const Step& step, const Taped& taped, const Lease& lease,
                                            Flow& edges) const {
  std::vector<Tensor> outputs, output_grads, wanted;
  for (const auto& [slot, value] : taped.out.entries()) {
    const Tensor* grad = edges.find(slot);
    if (grad == nullptr || !value.requires_grad()) continue;
    outputs.push_back(value);
    output_grads.push_back(border_.return_to(step, slot, *grad));
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

void Executor::reduce(const Step& step, const std::vector<Tensor>& param_grads, size_t micro_batch) {
  for (const int index : step.units) {
    const Unit& unit = plan_.units[static_cast<size_t>(index)];
    if (!unit.trainable) continue;
    std::vector<Tensor> grads(param_grads.empty() ? 0 : unit.params.size());
    for (size_t p = 0; p < param_grads.size(); ++p) {
      if (step.params[p].unit == index) grads[static_cast<size_t>(step.params[p].index)] = param_grads[p];
    }
    grads_.add(index, grads, micro_batch);
  }
}

}  // namespace lockstep
