// A file that torch.save has written of a dict of tensors (pytorch_model.bin): a zip file with a pickle that says what
// the tensors are, and a member for the bytes of each storage. The pickle is read, never run (model/pickle_reader.h).
//
// Example:
//   for (const auto& stored : parse_torch_file(file.bytes(), file.path().string())) use(stored.spec, stored.begin, …);
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/model/pickle.h"
#include "lockstep/model/stored_tensor.h"

namespace lockstep {

/// What torch.save has written, whatever it is; the result borrows from `file`. Throws UserError(kCheckpoint).
Pickle read_torch_pickle(std::span<const std::byte> file, const std::string& where);

/// `file` is the whole file. The tensors in the order of their dict; several may share bytes (tied weights), and a
/// transposed view has strides. Throws UserError(kCheckpoint) naming `where`, the tensor, what was expected and found:
/// the format before torch 1.6, names that no dict of tensors needs, values that are no tensors, unknown dtypes, bytes
/// that are not there. Source: torch 2.11, torch/serialization.py (_save, _load) and torch/_utils.py (_rebuild_*).
std::vector<StoredTensor> parse_torch_file(std::span<const std::byte> file, const std::string& where);

}  // namespace lockstep
