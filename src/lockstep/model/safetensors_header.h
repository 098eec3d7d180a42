// The header of a safetensors file, checked completely: after this, every tensor's bytes are known to lie in the file.
//
// Example:
//   for (const auto& stored : parse_safetensors_header(file.bytes(), file.path().string())) use(stored.spec, …);
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/model/stored_tensor.h"

namespace lockstep {

/// `file` is the whole file. The tensors in the order of their bytes. Throws UserError(kCheckpoint) naming `where`, the tensor, what was expected and found:
/// header length out of bounds, bad JSON, a name given twice, unknown dtype, offsets that do not fit dtype and shape,
/// overlap, gaps, fewer or more bytes than the header says. Source: huggingface/safetensors format description.
std::vector<StoredTensor> parse_safetensors_header(std::span<const std::byte> file, const std::string& where);

}  // namespace lockstep
