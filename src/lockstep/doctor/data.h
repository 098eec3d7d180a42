// Data files: each is opened, and rows spread over it go the way of training rows: read, pictures decoded, tokens made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/data/processor.h"
#include "lockstep/doctor/check_report.h"

namespace lockstep {

inline constexpr int64_t kRowsLookedAt = 64;

struct DataFacts {
  std::string file;
  int64_t rows = 0, broken = 0;  // whole ones, and lines that are no row
  std::string first_broken;
  int64_t looked = 0, unusable = 0;
  std::string first_unusable;
  bool tokens_made = false;  // false: without a model rows are only read and their pictures decoded
  int64_t longest_tokens = 0, media = 0;
  std::string longest_where;
  int64_t max_positions = 0;  // of the model; 0: not known
  bool strict = false;        // --strict true: a run would stop there
  std::string notices;        // of how the files were read
};
CheckResult judge_data(const DataFacts& facts);

struct DataOptions {
  DatasetOptions dataset;
  ProcessOptions process;
  const Processor* processor = nullptr;  // of the model, where there is one
  int64_t max_positions = 0;
  std::function<void(int64_t done, int64_t total)> progress{};
};

/// Throws UserError(kData) when the file cannot be opened or has no row.
DataFacts data_facts(const std::string& file, const DataOptions& options);

}  // namespace lockstep
