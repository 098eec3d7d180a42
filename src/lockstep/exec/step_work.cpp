#include "lockstep/exec/step_work.h"

#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include "lockstep/tensor/gpu_kernels.h"

namespace lockstep {
namespace {

StepWork counted;

/// What is read or written of it: a number that is repeated counts once.
double bytes_of(const Tensor& x) {
  if (!x.defined() || !x.is_meta()) return 0;
  auto bytes = static_cast<double>(x.element_size());
  for (int64_t i = 0; i < x.dim(); ++i) bytes *= x.stride(i) == 0 ? 1.0 : static_cast<double>(x.size(i));
  return bytes;
}

template <typename See>
void each_tensor(const c10::IValue& value, const See& see) {
  if (value.isTensor()) return see(value.toTensor());
  if (!value.isTensorList()) return;
  for (const Tensor& one : value.toTensorVector()) see(one);
}

double product_flops(std::string_view name, const std::vector<Tensor>& inputs) {
  const size_t first = name.starts_with("addmm") ? 1 : 0;
  if (first == 0 && name != "mm") return 0;
  const Tensor &a = inputs.at(first), &b = inputs.at(first + 1);
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(1));
}

double attention_flops(std::string_view kernel, std::span<const Tensor> tensors) {
  if (kernel.find("attention") == std::string_view::npos) return 0;
  const Tensor &q = tensors[0], &k = tensors[1];  // [B,N,T,H], [B,K,S,H]
  const double products = kernel.ends_with("backward") ? 5.0 : 2.0;
  return products * 2.0 * static_cast<double>(q.numel()) * static_cast<double>(k.size(2)) *
         (kernel.starts_with("causal") ? 0.5 : 1.0);
}

/// One op that runs. Whatever it calls tells it that it is no kernel itself.
struct Op final : at::ObserverContext {
  std::vector<Tensor> inputs;
  Op* outer = nullptr;
  bool calls_others = false;
};
thread_local Op* running = nullptr;

std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& function) {
  auto op = std::make_unique<Op>();
  for (const auto& value : function.inputs()) each_tensor(value, [&](const Tensor& x) { op->inputs.push_back(x); });
  op->outer = running;
  running = op.get();
  return op;
}

bool is_view(const std::string& name, const Tensor& made, const std::vector<Tensor>& inputs) {
  if (name.ends_with('_') || !made.defined()) return false;  // in place
  for (const Tensor& input : inputs) {
    if (input.defined() && input.is_alias_of(made)) return true;
  }
  return false;
}

void ends(const at::RecordFunction& function, at::ObserverContext* context) {
  static const std::set<std::string> kNone{
      "empty",   "empty_like",     "empty_strided",       "new_empty", "new_empty_strided", "resize_", "set_",
      "detach_", "requires_grad_", "_local_scalar_dense", "item"};
  Op& op = *static_cast<Op*>(context);
  running = op.outer;
  const std::string_view of = "aten::";
  std::string name = function.name();
  if (!name.starts_with(of)) return;
  name.erase(0, of.size());
  if (op.calls_others && op.outer != nullptr) op.outer->calls_others = true;
  if (op.calls_others || kNone.contains(name)) return;
  KernelWork work{.calls = 1, .bytes = 0, .flops = 0};
  bool view = false;
  for (const Tensor& x : op.inputs) work.bytes += bytes_of(x);
  for (const auto& value : function.outputs()) {
    each_tensor(value, [&](const Tensor& x) {
      view = view || is_view(name, x, op.inputs);
      work.bytes += bytes_of(x);
    });
  }
  if (view || work.bytes == 0) return;
  if (op.outer != nullptr) op.outer->calls_others = true;
  work.flops = product_flops(name, op.inputs);
  counted[name] += work;
}

void count_own(const char* name, std::span<const Tensor> tensors) {
  if (running != nullptr) running->calls_others = true;
  KernelWork work{.calls = 1, .bytes = 0, .flops = attention_flops(name, tensors)};
  for (const Tensor& x : tensors) work.bytes += bytes_of(x);
  counted[name] += work;
}

/// While it lives, what this process rehearses is counted.
class Counting {
 public:
  Counting()
      : handle_(at::addGlobalCallback(at::RecordFunctionCallback(begins, ends)
                                          .needsInputs(true)
                                          .needsOutputs(true)
                                          .scopes({at::RecordScope::FUNCTION}))) {
    counted.clear();
    gpu::watch_hollow(count_own);
  }
  ~Counting() {
    gpu::watch_hollow({});
    at::removeCallback(handle_);
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  at::CallbackHandle handle_;
};

StepWork work_of_run(const Model& model, const Plan& plan, const std::vector<RowsOfStep>& steps) {
  RehearsalOptions on_gpu;
  on_gpu.on_cpu = false;
  on_gpu.transport = "nccl";
  on_gpu.save = on_gpu.evaluate = false;
  const Counting counting;
  rehearse(model, plan, steps, on_gpu);
  return std::exchange(counted, {});
}

}  // namespace

KernelWork& KernelWork::operator+=(const KernelWork& other) {
  calls += other.calls;
  bytes += other.bytes;
  flops += other.flops;
  return *this;
}

KernelWork KernelWork::operator-(const KernelWork& other) const {
  return {.calls = calls - other.calls, .bytes = bytes - other.bytes, .flops = flops - other.flops};
}

StepWork work_of_step(const Model& model, const Plan& plan, const RowsOfStep& rows) {
  // A rehearsal loads and updates once, however many steps there are: a step is what two have more.
  const StepWork one = work_of_run(model, plan, {rows});
  StepWork step = difference(work_of_run(model, plan, {rows, rows}), one);
  if (const auto update = one.find("adamw"); update != one.end()) step.insert(*update);
  return step;
}

StepWork difference(const StepWork& more, const StepWork& less) {
  StepWork left;
  for (const auto& [name, work] : more) {
    const auto there = less.find(name);
    const KernelWork rest = there == less.end() ? work : work - there->second;
    if (rest.calls > 0) left.emplace(name, rest);
  }
  return left;
}

KernelWork sum_of(const StepWork& work) {
  KernelWork sum;
  for (const auto& [name, one] : work) sum += one;
  return sum;
}

}  // namespace lockstep
