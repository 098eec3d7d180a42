#include "lockstep/testing/fake_gpu/ops.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "lockstep/testing/fake_gpu/memory.h"
#include "lockstep/testing/fake_gpu/state.h"
#include "lockstep/testing/fake_gpu/stream.h"

namespace lockstep::fake_gpu {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

constexpr auto kType = c10::DeviceType::PrivateUse1;

bool is_fake(const Tensor& x) { return x.defined() && x.device().type() == kType; }

Stream& current_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(kType);
  return stream_of(device.index(), guard.getStream(device).id());
}

/// The same tensor with the CPU's address of its bytes. Does not keep them alive: as a queued kernel does not.
Tensor on_host(const Tensor& x) {
  if (x.numel() == 0) return at::empty_strided(x.sizes(), x.strides(), at::device(at::kCPU).dtype(x.scalar_type()));
  return at::from_blob(real(x.const_data_ptr()), x.sizes(), x.strides(), at::device(at::kCPU).dtype(x.scalar_type()));
}

Tensor hollow(const Tensor& x) {
  return at::empty_strided(x.sizes(), x.strides(), at::device(at::kMeta).dtype(x.scalar_type()));
}

Tensor of_zeros(const Tensor& x) {
  return at::empty_strided(x.sizes(), x.strides(), at::device(at::kCPU).dtype(x.scalar_type())).zero_();
}

/// Every fake tensor of a value, also of lists, as `change` wants it.
template <typename Change>
IValue changed(const IValue& value, const Change& change) {
  const auto one = [&](const Tensor& x) { return is_fake(x) ? change(x) : x; };
  if (value.isTensor()) return one(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> out;
    for (const Tensor& x : value.toTensorList()) out.push_back(one(x));
    return out;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> out;
    for (const std::optional<Tensor>& x : value.toOptionalTensorList()) out.push_back(x ? std::optional(one(*x)) : x);
    return out;
  }
  return value;
}

template <typename Visit>
void each_tensor(const IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& x : value.toTensorList()) visit(x);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<Tensor>& x : value.toOptionalTensorList()) {
      if (x && x->defined()) visit(*x);
    }
  }
}

/// Ops whose result's shape or value is in the data: a GPU's kernels wait for them too.
bool asks_the_device(const std::string& name) {
  static const std::set<std::string> kNames{"aten::nonzero",  "aten::masked_select", "aten::equal",
                                            "aten::_unique2", "aten::unique_dim",    "aten::unique_consecutive"};
  return kNames.contains(name);
}

/// The device that the arguments stand on. As CUDA's kernels want it: all on one, but for numbers on the host.
c10::Device device_of(const std::string& name, const Stack& arguments) {
  std::optional<c10::Device> found;
  for (const auto& argument : arguments) {
    each_tensor(argument, [&](const Tensor& x) {
      if (is_fake(x) && !found) found = x.device();
    });
  }
  TORCH_CHECK(found.has_value(), "fake GPU: ", name, " without a tensor of it");
  const bool takes_host_indices = name.starts_with("aten::index") || name.starts_with("aten::_index");
  for (const auto& argument : arguments) {
    each_tensor(argument, [&](const Tensor& x) {
      if (x.device() == *found || (x.is_cpu() && (x.dim() == 0 || takes_host_indices))) return;
      TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", *found,
                  " and ", x.device(), "! (", name, ")");
    });
  }
  return *found;
}

/// What the op gives for hollow arguments, or for zeros where it has no such kernel.
Stack tried(const c10::OperatorHandle& op, const Stack& arguments) {
  Stack stack;
  try {
    for (const auto& argument : arguments) {
      stack.push_back(changed(argument, hollow));
    }
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const c10::NotImplementedError&) {
    stack.clear();
    for (const auto& argument : arguments) stack.push_back(changed(argument, of_zeros));
    op.callBoxed(&stack);
  }
  return stack;
}

/// Numbers of the host travel with the call, as they are now.
IValue kept_for_call(const IValue& value) {
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cpu()) return value.toTensor().clone();
  if (!value.isOptionalTensorList()) return value;
  c10::List<std::optional<Tensor>> out;
  for (const std::optional<Tensor>& x : value.toOptionalTensorList()) {
    out.push_back(x && x->defined() && x->is_cpu() ? std::optional(x->clone()) : x);
  }
  return out;
}

/// A GPU keeps mean and deviation of a layer norm in float32; the CPU's kernel wants them as its input.
void as_cpu_wants(const c10::OperatorHandle& op, Stack& arguments) {
  if (op.schema().name() != "aten::native_layer_norm_backward") return;
  const auto dtype = arguments.at(1).toTensor().scalar_type();
  for (const size_t statistic : {3U, 4U}) arguments.at(statistic) = arguments.at(statistic).toTensor().to(dtype);
}

void compute(const c10::OperatorHandle& op, Stack& stack) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;
  as_cpu_wants(op, stack);
  op.callBoxed(&stack);
}

/// The results go where the tensors of the device have their bytes.
void write_results(const Stack& results, const std::vector<std::optional<IValue>>& places) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (!places[i]) continue;
    if (results[i].isTensor()) {
      if (results[i].toTensor().defined()) places[i]->toTensor().copy_(results[i].toTensor());
    } else if (results[i].isTensorList()) {
      const auto to = places[i]->toTensorList(), from = results[i].toTensorList();
      for (size_t j = 0; j < from.size(); ++j) to.get(j).copy_(from.get(j));
    }
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// The argument that a result of the op stands in.
const IValue& written_argument(const c10::FunctionSchema& schema, const Stack& arguments, const c10::Argument& result) {
  const auto& all = schema.arguments();
  const auto found = std::find_if(all.begin(), all.end(), [&](const c10::Argument& a) {
    return is_written(a) && a.alias_info()->beforeSets() == result.alias_info()->beforeSets();
  });
  return arguments.at(static_cast<size_t>(found - all.begin()));
}

/// A tensor, or a list of them, on the device, of the shapes of another.
IValue made_like(const IValue& shape, c10::Device device) {
  const auto one = [&](const Tensor& x) {
    return x.defined() ? at::empty_strided(x.sizes(), x.strides(), at::device(device).dtype(x.scalar_type()))
                       : Tensor();
  };
  if (shape.isTensor()) return one(shape.toTensor());
  c10::List<Tensor> all;
  for (const Tensor& x : shape.toTensorList()) all.push_back(one(x));
  return all;
}

/// An empty tensor that is given for a result gets the result's shape, as out= wants it.
void make_room(const c10::OperatorHandle& op, const Stack& arguments) {
  const auto& all = op.schema().arguments();
  const auto lacks_room = [&](size_t i) {
    return is_written(all[i]) && arguments[i].isTensor() && is_fake(arguments[i].toTensor()) &&
           arguments[i].toTensor().numel() == 0;
  };
  bool any = false;
  for (size_t i = 0; i < all.size(); ++i) any = any || lacks_room(i);
  if (!any) return;
  const Stack shapes = tried(op, arguments);
  const auto& returns = op.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    if (!is_written(returns[i]) || !shapes[i].isTensor()) continue;
    const Tensor out = written_argument(op.schema(), arguments, returns[i]).toTensor();
    const Tensor shape = shapes[i].toTensor();
    if (out.numel() > 0 || shape.numel() == 0) continue;
    const Tensor room = at::empty_strided(shape.sizes(), shape.strides(), out.options());
    out.unsafeGetTensorImpl()->set_storage_keep_dtype(room.storage());
    out.unsafeGetTensorImpl()->set_sizes_and_strides(room.sizes(), room.strides());
  }
}

void launch(const c10::OperatorHandle& op, Stack* stack) {
  const OnDevice kernels_memory(scratch());
  const auto& schema = op.schema();
  const auto& returns = schema.returns();
  const size_t count = schema.arguments().size();
  const Stack arguments(stack->end() - static_cast<int64_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  const c10::Device device = device_of(schema.name(), arguments);
  const c10::DeviceGuard guard(device);
  Stream& stream = current_stream(device);
  stream.check_health();

  make_room(op, arguments);
  Stack on_cpu;
  for (const auto& argument : arguments) on_cpu.push_back(changed(kept_for_call(argument), on_host));
  ++state().counts->launches;
  const bool waits = asks_the_device(schema.name());
  if (waits) {
    count_host_wait();
    stream.synchronize();
    compute(op, on_cpu);
  }

  // What the caller gets: its own argument where the op writes there, else a new tensor of the device.
  const bool makes_none = std::all_of(returns.begin(), returns.end(), is_written);
  const Stack shapes = waits ? on_cpu : makes_none ? Stack(returns.size()) : tried(op, arguments);
  std::vector<std::optional<IValue>> places(returns.size());
  for (size_t i = 0; i < returns.size(); ++i) {
    if (is_written(returns[i])) {
      stack->push_back(written_argument(schema, arguments, returns[i]));
    } else if (shapes[i].isTensor() || shapes[i].isTensorList()) {
      TORCH_CHECK(returns[i].alias_info() == nullptr, "fake GPU: ", schema.name(), " gives a view of an argument");
      stack->push_back(made_like(shapes[i], device));
      places[i] = changed(stack->back(), on_host);
    } else {
      TORCH_CHECK(waits, "fake GPU: ", schema.name(), " gives what is no tensor");
      stack->push_back(shapes[i]);
    }
  }
  stream.push([op, on_cpu = std::move(on_cpu), places = std::move(places), waits]() mutable {
    if (!waits) compute(op, on_cpu);
    const at::NoGradGuard no_grad;
    write_results(on_cpu, places);
  });
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) { launch(op, stack); }

c10::Device given(std::optional<c10::Device> device) {
  const c10::impl::VirtualGuardImpl guard(kType);
  return device && device->has_index() ? *device : guard.getDevice();
}

// NOLINTBEGIN(performance-unnecessary-value-param): LibTorch's signatures

Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(given(device));
  return at::detail::empty_generic(size, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(at::kFloat), format);
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(given(device));
  return at::detail::empty_strided_generic(
      size, stride, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype.value_or(at::kFloat));
}

/// `to` := `from`, on the stream of the device that sends; one that receives waits for it, as LibTorch has it for CUDA.
Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  ++state().counts->launches;
  const auto copy = [](const Tensor& out, const Tensor& in) {
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below;
    out.copy_(in);
  };
  if (is_fake(from) && is_fake(to)) {
    Stream &sends = current_stream(from.device()), &receives = current_stream(to.device());
    const bool two = &sends != &receives;
    if (two) {
      const auto ready = std::make_shared<Event>();
      const uint64_t moment = ready->begin();
      receives.push([=] { ready->pass(moment); });
      sends.push([=] { ready->wait_for(moment); });
    }
    sends.push([=, out = on_host(to), in = on_host(from)] { copy(out, in); });
    if (two) {
      const auto done = std::make_shared<Event>();
      const uint64_t moment = done->begin();
      sends.push([=] { done->pass(moment); });
      receives.push([=] { done->wait_for(moment); });
    }
    return to;
  }
  const Tensor& host = is_fake(from) ? to : from;
  Stream& stream = current_stream(is_fake(from) ? from.device() : to.device());
  stream.check_health();
  if (is_fake(to) && non_blocking && !is_pinned(host.const_data_ptr())) {
    // What is queued runs first, then the host's memory is read; when it is there is the stream's to say.
    count_host_wait();
    stream.synchronize();
    const Tensor read = at::empty_like(from);
    copy(read, from);
    stream.push([=, out = on_host(to)] { copy(out, read); });
    return to;
  }
  stream.push([=, out = is_fake(to) ? on_host(to) : to, in = is_fake(from) ? on_host(from) : from] { copy(out, in); });
  if (non_blocking && is_pinned(host.const_data_ptr())) return to;
  count_host_wait();
  stream.synchronize();
  return to;
}

// NOLINTNEXTLINE(readability-non-const-parameter): LibTorch's signature
void record_stream(Tensor& x, at::Stream stream) { allocator().recordStream(x.storage().data_ptr(), stream); }

at::Scalar local_scalar(const Tensor& x) {
  count_host_wait();
  current_stream(x.device()).synchronize();
  return on_host(x).item();
}

Tensor& set_storage(Tensor& x, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(x, std::move(source), offset, size, stride);
}

void convolution(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  launch_as("aten::convolution", "", *stack);
}

/// (grad, input, weight, stride, …) -> (grad, input, weight, bias sizes, stride, …)
void convolution_backward(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  constexpr int64_t kArguments = 10, kBeforeBias = 3;
  const Tensor weight = (*stack)[stack->size() - kArguments + 2].toTensor();
  stack->insert(stack->end() - kArguments + kBeforeBias, c10::List<int64_t>({weight.size(0)}));
  launch_as("aten::convolution_backward", "", *stack);
}

// NOLINTEND(performance-unnecessary-value-param)

}  // namespace

void launch_as(const char* name, const char* overload, Stack& stack) {
  launch(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), &stack);
}

void queue_on_cpu(torch::Library& aten, const char* name) {
  aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

void register_ops() {
  using torch::CppFunction;
  static torch::Library every(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  every.fallback(CppFunction::makeFromBoxedFunction<&fallback>());
  static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten.impl("empty.memory_format", TORCH_FN(empty));
  aten.impl("empty_strided", TORCH_FN(empty_strided));
  aten.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  aten.impl("view", TORCH_FN(at::native::view));
  aten.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  aten.impl("unfold", TORCH_FN(at::native::unfold));
  aten.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  aten.impl("_copy_from", TORCH_FN(copy_from));
  aten.impl("record_stream", TORCH_FN(record_stream));
  aten.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  register_attention(aten);
  register_norm(aten);
  // Where LibTorch has an op composed of others for devices that lack a kernel: a GPU has one.
  for (const char* name : {"native_layer_norm", "native_layer_norm_backward", "silu_backward"})
    queue_on_cpu(aten, name);
  aten.impl("convolution_overrideable", CppFunction::makeFromBoxedFunction<&convolution>());
  aten.impl("convolution_backward_overrideable", CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

}  // namespace lockstep::fake_gpu
