// One vector a row, or a token, for any number of multimodal rows on any number of ranks (docs/embed.md).
//
// Example:
//   const Embedded done = embed(job, {.run = {.model = "m"}, .dataset = {"rows.jsonl"}, .output = "vectors"}, events);
//   std::cout << done.counts.rows << " rows in " << done.file << "\n";
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/infer/embedder.h"
#include "lockstep/session/batch_search.h"
#include "lockstep/session/row_options.h"
#include "lockstep/session/session.h"
#include "lockstep/tasks/embedding_output.h"

namespace lockstep {

struct EmbeddingOptions {
  RunOptions run;
  RowOptions rows;
  std::vector<std::string> dataset;  // JSONL or JSON files
  BatchSize batch;                   // the last bits of a vector depend on it, never on the number of ranks
  EmbedOptions embedding;            // which states, pooled how
  std::filesystem::path output;      // a folder
  bool safetensors = false;          // instead of JSON lines
  bool overwrite = false;            // begin anew where the folder holds embeddings already

  ProcessOptions process() const;  // of its rows
  LoaderOptions loader(const Job& job, int64_t batch_size) const;
};

struct Embedded {
  bool was_finished = false;   // the folder held all of it already: nothing was done
  EmbeddingCounts counts;      // on the reporting rank
  std::filesystem::path file;  // of the vectors
  double seconds = 0;          // 0: it went on from an earlier run
};

/// A run that was cut short goes on where it stopped when it is asked for again. `events` has sinks on the reporting
/// rank only. Throws UserError: also when the folder holds embeddings of another run. Collective.
Embedded embed(Job& job, const EmbeddingOptions& options, const EventBus& events);

/// For a batch size of auto: as many copies of the longest row as fit. Collective.
int64_t find_embedding_batch(Session& session, const EmbeddingOptions& options, const Dataset& rows,
                             const EventBus& events);

}  // namespace lockstep
