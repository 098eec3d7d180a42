// Matrices that a folder keeps as codes of 4 or 8 bits, as bitsandbytes writes them beside their scales: found by their
// tensors, checked, and known as one tensor of the dtype that they had.
//
//   4 bits: X.weight u8, X.weight.absmax, .quant_map, .nested_absmax, .nested_quant_map, .quant_state.bitsandbytes__nf4
//   8 bits: X.weight i8, X.SCB, X.weight_format
// Source: bitsandbytes 0.50 functional.py QuantState.as_dict, transformers 5 quantizers/quantizer_bnb_*.py.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>

#include "lockstep/tensor/quantise.h"

namespace lockstep {

struct QuantisedTensor {
  QuantFormat format;
  TensorSpec spec;             // as others see it: "X.weight", in the dtype that it had
  float offset = 0;            // of nested scales
  std::string scales, nested;  // tensors of the folder; its codes are called as it is
};

/// The tensors of a folder as they stand in its files.
struct RawTensors {
  std::function<const TensorSpec*(const std::string& name)> find;
  std::function<void(const std::string& name, int64_t first_byte, std::span<uint8_t> out)> read;
};

struct QuantisedTensors {
  std::map<std::string, QuantisedTensor> tensors;  // by name
  std::set<std::string> parts;                     // what belongs to them, and is no tensor of its own
};

/// Throws UserError(kCheckpoint) naming the tensor, what is expected and what was found: a part that is missing or too
/// short, a state that is none, another block size or map than bitsandbytes has by default.
QuantisedTensors find_quantised(std::span<const std::string> names, const RawTensors& raw, const std::string& where);

/// Bytes [begin, begin + out.size()) of a matrix, as QuantLayout lays them.
void read_quantised(const QuantisedTensor& tensor, const RawTensors& raw, int64_t begin, std::span<uint8_t> out);
/// Scales [first, first + out.size()) as numbers.
void read_scales(const QuantisedTensor& tensor, const RawTensors& raw, int64_t first, std::span<float> out);
/// Elements [begin, begin + out.numel()), unpacked into `out` (contiguous, host), converting the dtype.
void read_unpacked(const QuantisedTensor& tensor, const RawTensors& raw, int64_t begin, const Tensor& out);

}  // namespace lockstep
