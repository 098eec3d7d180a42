// Tensors in a file of PyTorch's own, for programs that read no safetensors.
//
// Example:
//   write_torch_file("mm_projector.bin", {{"model.mm_projector.0.weight", weight}});
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tensor/fwd.h"

namespace lockstep {

/// A dict by name, as torch.save writes one: torch.load reads it with weights_only=True. Written under another name, then
/// renamed. Throws UserError(kData) when it cannot be.
void write_torch_file(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace lockstep
