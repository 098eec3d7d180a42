// Kernels without a stack in front of the operators of c10d that are called most.
#pragma once

#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernel_of.h"
#include "made_call.h"
#include "watched_calls.h"
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

namespace lockstep::python {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using GroupPointer = c10::intrusive_ptr<c10d::ProcessGroup>;
using ReductionPointer = c10::intrusive_ptr<c10d::ReduceOp>;

/// In front of an operator of this signature, one for each key: for the calls that are made most. To lay their arguments on a stack,
/// and to take them from there, would cost them more than all that is recorded. They are told apart by their types, and by their
/// places where those do not say enough.
template <size_t kOf, c10::DispatchKey kKey, typename Signature>
struct Direct;
template <size_t kOf, c10::DispatchKey kKey, typename Tensors, typename... Args>
struct Direct<kOf, kKey, std::tuple<Tensors, WorkPointer>(Args...)> {
  using Return = std::tuple<Tensors, WorkPointer>;
  Places places;
  c10::OperatorHandle op;
  c10::KernelFunction original;
  static inline const Direct* one = nullptr;

  /// False: this torch has another signature.
  static bool stand_before(const c10::OperatorHandle& op, const Places& places, torch::Library& library) {
    if (places.arguments != sizeof...(Args)) return false;
    one = new Direct{places, op, direct_kernel_of(op, kKey)};  // for ever
    try {
      library.impl(kWatched[kOf].name, torch::CppFunction(&Direct::call));
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }

  struct Given {
    at::TensorList tensors;
    const c10d::ProcessGroup* group = nullptr;
    const c10d::ReduceOp* reduction = nullptr;
    WatchedCalls::Made made;
  };
  template <typename Argument>
  void take([[maybe_unused]] size_t at, [[maybe_unused]] const Argument& argument, Given& given) const {
    if constexpr (std::is_same_v<Argument, GroupPointer>) given.group = argument.get();
    if constexpr (std::is_same_v<Argument, ReductionPointer>) given.reduction = argument.get();
    if constexpr (std::is_same_v<Argument, at::Tensor> || std::is_same_v<Argument, at::TensorList>) {
      if (at == places.tensors) given.tensors = at::TensorList(argument);
    }
    if constexpr (std::is_same_v<Argument, bool>) {
      if (at == places.async) given.made.is_async = argument;
    }
    if constexpr (std::is_same_v<Argument, int64_t>) {
      if (at == places.root) given.made.signature.root = static_cast<int32_t>(argument);
    }
  }

  std::optional<WatchedCalls::Call> enter(WatchedCalls& calls, const Given& given) const {
    WatchedCalls::Made made = made_of(kWatched[kOf], given.tensors, given.reduction != nullptr);
    if (given.reduction != nullptr) made.signature.reduce = reduction_of(*given.reduction);
    made.signature.root = given.made.signature.root;
    made.is_async = given.made.is_async;
    made.on_gpu = kKey == c10::DispatchKey::CUDA;
    return calls.enter(*given.group, made);
  }

  static Return call(c10::DispatchKeySet keys, Args... args) {
    const auto run = [&]() -> Return {
      return one->original.template call<Return, Args...>(one->op, keys, std::forward<Args>(args)...);
    };
    WatchedCalls& calls = WatchedCalls::instance();
    if (!calls.joined()) return run();
    Given given;
    size_t at = 0;
    (one->take(at++, args, given), ...);
    const auto entered = one->enter(calls, given);
    if (!entered) return run();
    Return out = [&]() -> Return {
      try {
        return run();
      } catch (...) {
        calls.over(*entered, true);
        throw;
      }
    }();
    calls.launched(*entered, std::get<1>(out), !given.made.is_async.value_or(true));
    return out;
  }
};

/// In kWatched.
constexpr size_t index_of(std::string_view name) {
  size_t at = 0;
  while (kWatched[at].name != name) ++at;
  return at;
}

/// False: it is none of these, or this torch has it otherwise.
template <c10::DispatchKey kKey>
bool stand_directly(std::string_view name, const c10::OperatorHandle& op, const Places& places,
                    torch::Library& library) {
  using List = std::tuple<std::vector<at::Tensor>, WorkPointer>;
  using One = std::tuple<at::Tensor, WorkPointer>;
  if (name == "allreduce_") {
    using Signature = List(at::TensorList, const GroupPointer&, const ReductionPointer&,
                           const std::optional<at::Tensor>&, bool, int64_t);
    return Direct<index_of("allreduce_"), kKey, Signature>::stand_before(op, places, library);
  }
  if (name == "broadcast_") {
    using Signature = List(at::TensorList, const GroupPointer&, int64_t, int64_t, bool, int64_t);
    return Direct<index_of("broadcast_"), kKey, Signature>::stand_before(op, places, library);
  }
  if (name == "_allgather_base_") {
    using Signature = One(at::Tensor&, at::Tensor&, const GroupPointer&, bool, int64_t);
    return Direct<index_of("_allgather_base_"), kKey, Signature>::stand_before(op, places, library);
  }
  if (name == "_reduce_scatter_base_") {
    using Signature = One(at::Tensor&, at::Tensor&, const GroupPointer&, const ReductionPointer&, bool, int64_t);
    return Direct<index_of("_reduce_scatter_base_"), kKey, Signature>::stand_before(op, places, library);
  }
  return false;
}

}  // namespace lockstep::python
