// Rows being generated on one rank: a row that ends leaves its slot to the next one at once, and no row waits for
// another. It makes the parts of each forward pass and takes their logits; it runs nothing itself.
//
// Each piece of a prompt runs as a part of its own (infer/prompt_cache.h) and the tokens after it as one part of always the
// same size, free slots included: so what a row says depends on the number of slots, but never on its neighbours, its place or
// the number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/exec/executor.h"
#include "lockstep/infer/media_memory.h"
#include "lockstep/infer/prompt_cache.h"
#include "lockstep/infer/sampler.h"
#include "lockstep/model/batch.h"
#include "lockstep/model/model.h"

namespace lockstep {

struct GenerateOptions {
  int64_t max_new_tokens = 64;
  int64_t batch_size = 8;      // slots: rows that one rank runs together
  bool remember_media = true;  // what towers make of media is kept for rows with the same: up to 64 MiB
  PromptReuse reuse = PromptReuse::kPieces;
  std::vector<int32_t> stop_tokens;
  std::function<std::string(std::span<const int32_t>)> text_of;  // of tokens, where sampling.stop_words are asked for
  SamplingOptions sampling;
  bool passes_positions = false;  // answers go on beyond those that the model was made for
  bool penalises_prompt = true;   // its tokens too count as repeated
  CollateOptions collate;
  size_t adapters = 0;  // several, of which each row chooses one
  /// Called on the rank that generates, as soon as a token is known (stop tokens are not shown).
  std::function<void(int64_t row, int32_t token)> on_token;
};

/// A row's answer: its index in the input, tokens without the stop token, and whether it ended by one, or by a stop word.
struct Generated {
  int64_t row = 0;
  std::vector<int32_t> tokens;
  bool stopped = false;
};

struct Prompt {
  int64_t row = 0;
  Features features;
  std::optional<size_t> adapter = {};  // of several; nullopt: none
};

class DecodeSlots {
 public:
  /// `prompts` has options.batch_size slots, none of them open. `media`: remembers what towers make; null: they run for every row.
  DecodeSlots(const ModelDims& dims, const GenerateOptions& options, PromptCache& prompts,
              MediaMemory* media = nullptr);
  ~DecodeSlots() { prompts_.drop_open(); }
  DecodeSlots(const DecodeSlots&) = delete;
  DecodeSlots& operator=(const DecodeSlots&) = delete;

  bool empty() const { return rows_ == 0; }
  bool full() const { return rows_ == static_cast<int64_t>(slots_.size()); }
  void admit(Prompt prompt);  // needs a free slot

  /// Of the next pass, one at least unless empty: one token more for every row that goes on, and what is new of the new
  /// prompts; of those that look at the same media, which nobody has looked at yet, only the first.
  std::vector<SubBatch> parts();
  /// The same parts after the pass. Returns the rows that ended with it; their slots are free.
  std::vector<Generated> take(std::span<const SubBatch> parts);

 private:
  struct Row {
    Generated result;
    Features prompt;            // until its pass
    std::vector<int32_t> seen;  // prompt and answer
    std::optional<size_t> adapter = {};
    std::optional<MediaKey> media = {};  // what its media are, where they are remembered
    int64_t media_end = 0;               // the tokens up to its last medium
    std::vector<int64_t> ends;           // of the pieces of its prompt
    bool waited = false;                 // a pass, for another row to look at them
    int64_t next_position = 0;           // of the next token; media may take fewer places than tokens
    bool started = false;
  };
  void add_prompt(int64_t slot, Row& row, int64_t known, std::vector<SubBatch>& parts);
  SubBatch token_part();
  std::optional<AdapterRows> adapters_of_slots() const;
  bool accept(Row& row, std::span<float> logits) const;

  const ModelDims& dims_;
  const GenerateOptions& options_;
  MediaMemory* media_;
  std::vector<std::optional<Row>> slots_;
  int64_t rows_ = 0;
  PromptCache& prompts_;
};

}  // namespace lockstep
