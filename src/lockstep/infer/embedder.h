// One vector a row for any number of rows, on any number of ranks. Rows of a batch stand behind one another, so no work
// is spent on padding; under ZeRO-3 the ranks agree before each batch, and who has no more rows keeps lending its
// shards.
//
// Example:
//   Embedder embedder(model, executor, control, plan.gathers());
//   embedder.run(loader, {.pooling = Pooling::kMean}, [&](const RowEmbedding& row) { … });
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/loader.h"
#include "lockstep/exec/executor.h"
#include "lockstep/model/batch.h"

namespace lockstep {

/// Which tokens of a row make its vector, in float32: the mean of all, the last, or the first (a CLS token's place).
enum class Pooling { kMean, kLast, kCls };

struct EmbedOptions {
  /// kWhole: hidden states after the final norm, pooled to [D]. kInputs: the embeddings that enter the decoder,
  /// features of images in the places of their tokens, all of them: [tokens, D].
  Extent extent = Extent::kWhole;
  Pooling pooling = Pooling::kMean;
  bool normalize = false;  // each vector to length 1
  CollateOptions collate;  // its layout is set here
};

/// `values`: [D] or [tokens, D], float32, one token behind the other; D is `width`.
struct RowEmbedding {
  int64_t row = 0, tokens = 0, width = 0;
  std::vector<float> values;
};

class Embedder {
 public:
  Embedder(const Model& model, Executor& executor, Communicator& control, bool gathers)
      : model_(model), executor_(executor), control_(control), gathers_(gathers) {}

  struct Sinks {
    std::function<void(const RowEmbedding& row)> embedded;  // called on the rank that had the row
    std::function<void(const SkippedRow& row)> skipped;
  };
  /// Runs the loader to the end of its epoch; a batch is what the loader gives, so the bits of a row follow from the
  /// rows beside it and not from the number of ranks. What is thrown on one rank is thrown on all. Collective.
  void run(Loader& loader, const EmbedOptions& options, const Sinks& sinks);

 private:
  void run_batch(const LoadedBatch& loaded, Batch batch, const EmbedOptions& options, const Sinks& sinks,
                 Modalities anywhere);

  const Model& model_;
  Executor& executor_;
  Communicator& control_;
  bool gathers_;
};

}  // namespace lockstep
