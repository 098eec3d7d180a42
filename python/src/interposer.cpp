#include "interposer.h"

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "kernel_of.h"
#include "made_call.h"
#include "watched_calls.h"
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

namespace lockstep::python {
namespace {

constexpr std::array kKeys{c10::DispatchKey::CPU, c10::DispatchKey::CUDA};

/// As the schema says that it is: IValue::toCustomClass would compare names of types, which costs more than all the rest.
template <typename Class>
const Class& class_at(const c10::IValue& value) {
  const void* const object = value.toObjectRef().getSlot(0).internalToPointer();
  return *static_cast<const Class*>(static_cast<const c10::intrusive_ptr_target*>(object));
}

c10::intrusive_ptr<c10d::Work> work_of(const c10::IValue& value) {
  if (!value.isObject()) return nullptr;
  return c10::static_intrusive_pointer_cast<c10d::Work>(value.toObjectRef().getSlot(0).toCapsule());
}

class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(const Watched& what, c10::DispatchKey key, Places places, OriginalKernel original)
      : what_(what), on_gpu_(key == c10::DispatchKey::CUDA), places_(places), original_(std::move(original)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    WatchedCalls& calls = WatchedCalls::instance();
    const auto call = calls.joined() ? enter(calls, *stack) : std::nullopt;
    const bool waits = call && !is_async(*stack).value_or(true);
    if (!call) return original_.callBoxed(op, keys, stack);
    try {
      original_.callBoxed(op, keys, stack);
    } catch (...) {
      calls.over(*call, true);
      throw;
    }
    calls.launched(*call, work_of(stack->back()), waits);
  }

 private:
  const c10::IValue& argument(const torch::jit::Stack& stack, size_t at) const {
    return stack[stack.size() - places_.arguments + at];
  }

  std::optional<bool> is_async(const torch::jit::Stack& stack) const {
    return places_.async ? std::make_optional(argument(stack, *places_.async).toBool()) : std::nullopt;
  }

  std::optional<WatchedCalls::Call> enter(WatchedCalls& calls, const torch::jit::Stack& stack) const {
    WatchedCalls::Made made = made_of(what_, argument(stack, places_.tensors), places_.reduction.has_value());
    if (places_.reduction) {
      made.signature.reduce = reduction_of(class_at<c10d::ReduceOp>(argument(stack, *places_.reduction)));
    }
    if (places_.outputs) add_splits(made, stack);
    made.is_async = is_async(stack);
    made.on_gpu = on_gpu_;
    if (places_.root) made.signature.root = static_cast<int32_t>(argument(stack, *places_.root).toInt());
    if (places_.peer) made.peer = static_cast<int>(argument(stack, *places_.peer).toInt());
    if (places_.tag) made.tag = argument(stack, *places_.tag).toInt();
    return calls.enter(class_at<c10d::ProcessGroup>(argument(stack, places_.group)), made);
  }

  /// In numbers. Of one tensor the rows are dealt out, evenly where nobody says how; of several each is for one rank.
  std::vector<int64_t> splits_of(const torch::jit::Stack& stack, size_t tensors, std::optional<size_t> splits,
                                 int64_t size) const {
    std::vector<int64_t> out;
    if (!splits) {
      for_each_tensor(argument(stack, tensors), [&](const at::Tensor& one) { out.push_back(one.numel()); });
      return out;
    }
    const at::Tensor& tensor = argument(stack, tensors).toTensor();
    const auto rows = argument(stack, *splits).toDimVector();
    if (!tensor.defined() || tensor.dim() == 0 || size < 1) return out;
    const int64_t row = tensor.size(0) == 0 ? 0 : tensor.numel() / tensor.size(0);
    for (const int64_t one : rows) out.push_back(one * row);
    if (rows.empty()) out.assign(static_cast<size_t>(size), tensor.numel() / size);
    return out;
  }

  void add_splits(WatchedCalls::Made& made, const torch::jit::Stack& stack) const {
    const int64_t size = class_at<c10d::ProcessGroup>(argument(stack, places_.group)).getSize();
    made.sends = splits_of(stack, places_.tensors, places_.input_splits, size);
    made.receives = splits_of(stack, *places_.outputs, places_.output_splits, size);
  }

  const Watched& what_;
  bool on_gpu_;
  Places places_;
  OriginalKernel original_;
};

/// That a kernel is replaced is what is wanted here.
class Quiet final : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace

std::vector<std::string> watch_collectives() {
  static auto& libraries = *new std::vector<std::unique_ptr<torch::Library>>;  // for ever
  static auto& names = *new std::vector<std::string>;
  if (!libraries.empty()) return names;
  struct Found {
    const Watched* what;
    c10::DispatchKey key;
    Places places;
    OriginalKernel original;
  };
  std::vector<Found> found;
  for (const auto& what : kWatched) {
    const auto op = c10::Dispatcher::singleton().findSchema({std::string("c10d::") + what.name, ""});
    if (!op) throw std::runtime_error(fmt::format("this torch has no c10d::{}", what.name));
    const Places places = places_of(op->schema(), what);
    for (const auto key : kKeys) {
      if (op->hasKernelForDispatchKey(key)) {
        found.push_back({&what, key, places, kernel_of(*op, key)});
      }
    }
    names.push_back(what.name);
  }
  Quiet quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  for (const auto key : kKeys) {
    libraries.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, "c10d", key, __FILE__, __LINE__));
    for (auto& one : found) {
      if (one.key != key) continue;
      libraries.back()->impl(one.what->name, torch::CppFunction::makeFromBoxedFunctor(
                                                 std::make_unique<Kernel>(*one.what, key, one.places, one.original)));
    }
  }
  return names;
}

}  // namespace lockstep::python
