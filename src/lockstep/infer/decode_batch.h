// Some rows being generated together: left-padded prompts, their cache, and which of them still go on. It makes the
// inputs of each forward pass and takes its logits; it runs nothing itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/infer/sampler.h"
#include "lockstep/model/batch.h"
#include "lockstep/model/kv_cache.h"
#include "lockstep/model/model.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

struct GenerateOptions {
  int64_t max_new_tokens = 64;
  int64_t batch_size = 8;  // rows that one rank runs together
  std::vector<int32_t> stop_tokens;
  SamplingOptions sampling;
  CollateOptions collate;
  /// Called on the rank that generates, as soon as a token is known (stop tokens are not shown).
  std::function<void(int64_t row, int32_t token)> on_token;
};

/// A row's answer: its index in the input, tokens without the stop token, and whether it ended by one.
struct Generated {
  int64_t row = 0;
  std::vector<int32_t> tokens;
  bool stopped = false;
};

struct Prompt {
  int64_t row = 0;
  Features features;
};

class DecodeBatch {
 public:
  DecodeBatch(const ModelDims& dims, std::vector<Prompt> prompts, const GenerateOptions& options);

  bool done() const { return live_.empty(); }
  bool has_image() const { return !started_ && image_; }
  /// Of the next pass: the whole prompts first, then one token a row.
  Flow inputs();
  KvCache* cache() { return &cache_; }
  /// logits: [rows, V] of the last position, f32 on the host.
  void take(const Tensor& logits);
  std::vector<Generated> results() && { return std::move(results_); }

 private:
  struct Live {
    size_t result = 0;          // in results_
    int64_t length = 0;         // tokens so far without padding
    int64_t offset = 0;         // how far positions run ahead of them: media may take fewer places than tokens
    std::vector<int32_t> seen;  // prompt and answer
  };
  bool accept(Live& live, int32_t token);
  void drop_finished(const std::vector<int64_t>& kept);

  const ModelDims& dims_;
  const GenerateOptions& options_;
  std::vector<Generated> results_;
  std::vector<Live> live_;
  Flow prompt_;
  Tensor visible_;  // [rows, S] bool: which cached positions are tokens
  KvCache cache_;
  bool image_ = false, started_ = false;
};

}  // namespace lockstep
