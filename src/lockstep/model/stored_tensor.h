// A tensor as it stands in a file, whatever the file's format: what it is, and where its elements are.
//
// Example:
//   copy_elements(stored, file.bytes(), 4096, buffer);   // elements [4096, …) of the flattened tensor, in its own dtype
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/tensor/spec.h"

namespace lockstep {

/// What to do about a file whose bytes are not those that it speaks of.
inline constexpr const char* kReloadHint = "copy or download the file again and compare its size with the source";

/// No tensor has more elements: far beyond any file, far below overflow.
inline constexpr int64_t kMostElements = int64_t{1} << 56;

/// Whoever makes one has checked that [begin, end) lies in the file and holds every element.
struct StoredTensor {
  TensorSpec spec;
  size_t begin = 0, end = 0;          // bytes of the file
  std::vector<int64_t> strides = {};  // in elements, 0 for dimensions of one; empty: contiguous from `begin` to `end`
};

/// Fills `out` with the bytes of the flattened tensor's elements from `first` on, as many as `out` holds: a whole number.
void copy_elements(const StoredTensor& stored, std::span<const std::byte> file, int64_t first,
                   std::span<std::byte> out);

}  // namespace lockstep
