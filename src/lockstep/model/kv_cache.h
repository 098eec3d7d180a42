// Keys and values of the tokens seen so far, one pair a decoder layer; rows of a batch are left-padded to one length.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/tensor/fwd.h"

namespace lockstep {

class KvCache {
 public:
  explicit KvCache(int64_t layers, int64_t capacity);  // capacity: tokens reserved at once, grows when exceeded
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  /// Appends k, v [B,K,T,H] of layer `layer` and returns all of that layer: [B,K,S,H] each, S = tokens so far.
  std::pair<Tensor, Tensor> append(int64_t layer, const Tensor& k, const Tensor& v);
  int64_t length() const;  // tokens held, by the last layer appended to
  /// Keeps the given rows of the batch, in that order.
  void keep_rows(const Tensor& rows);

 private:
  struct Layer;
  std::vector<Layer> layers_;
  int64_t capacity_;
  int64_t length_ = 0;
};

}  // namespace lockstep
