#include "lockstep/model/stored_tensor.h"

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

/// Walks the elements of a strided tensor in the order of its flattened form.
class StridedWalk {
 public:
  StridedWalk(const StoredTensor& stored, int64_t first)
      : shape_(stored.spec.shape), strides_(stored.strides), index_(shape_.size()) {
    for (size_t d = shape_.size(); d-- > 0; first /= shape_[d]) {
      index_[d] = first % shape_[d];
      offset_ += index_[d] * strides_[d];
    }
  }

  int64_t offset() const { return offset_; }  // in elements, of the one that comes next
  int64_t left_in_line() const { return shape_.back() - index_.back(); }

  /// By at most left_in_line() elements.
  void advance(int64_t count) {
    index_.back() += count;
    offset_ += count * strides_.back();
    for (size_t d = shape_.size() - 1; d > 0 && index_[d] == shape_[d]; --d) {
      offset_ += strides_[d - 1] - shape_[d] * strides_[d];
      index_[d] = 0;
      ++index_[d - 1];
    }
  }

 private:
  const Shape& shape_;
  const std::vector<int64_t>& strides_;
  Shape index_;
  int64_t offset_ = 0;
};

/// `Size` is known when compiled, so that each element is one move.
template <size_t Size>
void copy_line(const std::byte* from, int64_t step, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + static_cast<size_t>(i) * Size, from + i * step, Size);
}

void copy_line(size_t size, const std::byte* from, int64_t step, int64_t count, std::byte* to) {
  switch (size) {
    case 1:
      return copy_line<1>(from, step, count, to);
    case 2:
      return copy_line<2>(from, step, count, to);
    case 4:
      return copy_line<4>(from, step, count, to);
    default:
      return copy_line<8>(from, step, count, to);
  }
}

}  // namespace

void copy_elements(const StoredTensor& stored, std::span<const std::byte> file, int64_t first,
                   std::span<std::byte> out) {
  if (out.empty()) return;
  const auto size = static_cast<size_t>(dtype_bytes(stored.spec.dtype));
  const std::byte* const base = file.data() + stored.begin;
  if (stored.strides.empty()) {
    std::memcpy(out.data(), base + static_cast<size_t>(first) * size, out.size());
    return;
  }
  const auto width = static_cast<int64_t>(size);
  StridedWalk walk(stored, first);
  for (auto left = static_cast<int64_t>(out.size() / size); left > 0;) {
    const int64_t now = std::min(left, walk.left_in_line());
    copy_line(size, base + walk.offset() * width, stored.strides.back() * width, now,
              &out[out.size() - static_cast<size_t>(left) * size]);
    walk.advance(now);
    left -= now;
  }
}

}  // namespace lockstep
