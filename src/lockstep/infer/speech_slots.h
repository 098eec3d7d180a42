// Rows whose answers are being said on one rank: as DecodeSlots, over the codes of a talker. A row begins with a pass of
// the whole model over prompt and answer, from which the talker has what to say; then it says a code a pass, alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/data/speech.h"
#include "lockstep/exec/executor.h"
#include "lockstep/infer/sampler.h"
#include "lockstep/model/batch.h"
#include "lockstep/model/kv_cache.h"
#include "lockstep/model/model.h"
#include "lockstep/tensor/fwd.h"

namespace lockstep {

struct SpeakOptions {
  int64_t max_codes = 4096;
  int64_t batch_size = 8;  // slots
  /// Source: transformers 5.23 Qwen2_5OmniForConditionalGeneration.generate, what it takes for talker_*.
  SamplingOptions sampling{.temperature = 0.9, .top_k = 40, .top_p = 0.8, .repetition_penalty = 1.05};
  CollateOptions collate;
};

/// A row to be said: Features::speech is a prompt (data/speech.h).
struct ToSay {
  int64_t row = 0;
  Features features;
};

/// Its codes, without the one that ended it.
struct Spoken {
  int64_t row = 0;
  std::vector<int32_t> codes;
  bool stopped = false;
};

class SpeechSlots {
 public:
  /// `dims`: Model::speech. Borrowed: all three.
  SpeechSlots(const ModelDims& dims, const SpeechRules& rules, const SpeakOptions& options);
  ~SpeechSlots();
  SpeechSlots(const SpeechSlots&) = delete;
  SpeechSlots& operator=(const SpeechSlots&) = delete;

  bool empty() const { return rows_ == 0; }
  bool full() const { return rows_ == static_cast<int64_t>(slots_.size()); }
  void admit(ToSay row);  // needs a free slot

  std::vector<SubBatch> parts();
  /// The same parts after the pass. Returns the rows that ended with it; their slots are free.
  std::vector<Spoken> take(std::span<const SubBatch> parts);

 private:
  struct Row;
  SubBatch prompt_part(int64_t slot, Row& row);
  SubBatch code_part();
  bool accept(Row& row, std::span<float> logits) const;

  const ModelDims& dims_;
  const SpeechRules& rules_;
  const SpeakOptions& options_;
  std::vector<std::unique_ptr<Row>> slots_;  // nullptr: free
  int64_t rows_ = 0;
  KvCache cache_;
};

}  // namespace lockstep
