// The same bits from the same work, on GPUs too.
#pragma once

namespace lockstep {

/// For the whole process, before anything is computed on a GPU. An op whose only kernel there adds in an order of its own is
/// refused from then on, with LibTorch's words. On the CPU, and in sums over ranks, nothing changes: they have one order.
void compute_deterministically();

}  // namespace lockstep
