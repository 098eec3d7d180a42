// The header of a safetensors file, checked completely: after this, every tensor's bytes are known to lie in the file.
//
// Example:
//   const SafetensorsHeader header = parse_safetensors_header(file.bytes(), file.path().string());
//   for (const auto& stored : header.tensors) use(stored.spec, file.bytes().subspan(header.data_begin + stored.begin,
//   …));
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/tensor/spec.h"

namespace lockstep {

/// A tensor and its bytes [begin, end) behind SafetensorsHeader::data_begin.
struct StoredTensor {
  TensorSpec spec;
  size_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of their bytes
  size_t data_begin = 0;
};

/// `file` is the whole file. Throws UserError(kCheckpoint) naming `where`, the tensor, what was expected and found:
/// header length out of bounds, bad JSON, a name given twice, unknown dtype, offsets that do not fit dtype and shape,
/// overlap, gaps, fewer or more bytes than the header says. Source: huggingface/safetensors format description.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& where);

}  // namespace lockstep
