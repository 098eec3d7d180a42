// Every op of LibTorch on the fake GPU: queued on the current stream, computed by the CPU's kernel on the bytes behind the
// addresses.
#pragma once

#include <vector>

namespace c10 {
struct IValue;
}
namespace torch {
class Library;
}

namespace lockstep::fake_gpu {

void register_ops();
/// Fused attention, as a GPU has it.
void register_attention(torch::Library& aten);
/// Root mean square norms in one op, as a GPU has them.
void register_norm(torch::Library& aten);

/// The op is queued as it is, where LibTorch would compose it of others.
void queue_on_cpu(torch::Library& aten, const char* name);

/// An op under another name, which the CPU's kernels know: arguments are on the stack, results come there.
void launch_as(const char* name, const char* overload, std::vector<c10::IValue>& stack);

}  // namespace lockstep::fake_gpu
