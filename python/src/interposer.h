// Sees every call that PyTorch makes of c10d: the dispatcher's kernels of "c10d::*" are replaced by ones that tell
// WatchedCalls and then run the kernel that stood there. Backends, their types and their names stay as they are.
#pragma once

#include <string>
#include <vector>

namespace lockstep::python {

/// For CPU and CUDA; once. Returns the operators that are watched. Throws std::runtime_error naming what this torch has
/// otherwise than expected; then nothing has been replaced.
std::vector<std::string> watch_collectives();

}  // namespace lockstep::python
