// Tests only: rows of features as if they had been read from a file.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/test_processor.h"
#include "lockstep/exec/test_job.h"

namespace lockstep::test {

/// Row i of a data set is row i of a list; "bad" ones cannot be used.
class ListProcessor final : public test::FeaturesProcessor {
 public:
  ListProcessor(std::vector<Features> rows, std::vector<int64_t> bad) : rows_(std::move(rows)), bad_(std::move(bad)) {}
  Features train_features(const Sample& sample, const ProcessOptions&) const override {
    if (std::find(bad_.begin(), bad_.end(), sample.row) != bad_.end())
      throw data_error(sample.where + ": no such image");
    Features features = rows_[static_cast<size_t>(sample.row)];
    features.labels.clear();
    features.sample = sample;
    return features;
  }

 private:
  std::vector<Features> rows_;
  std::vector<int64_t> bad_;
};

/// Where the ranks of a job that trains nothing have its weights.
struct Held {
  int stage = 0;
  bool shared = false;  // zero3: in memory that all of them read
};
inline constexpr std::array kHeld = {Held{0}, Held{3}, Held{3, true}};
inline std::ostream& operator<<(std::ostream& out, const Held& held) {
  return out << "zero" << held.stage << (held.shared ? ", shared" : "");
}

/// A job that trains nothing.
inline JobOptions inference_job(int world, const Held& held) {
  JobOptions options;
  options.plan.world = world;
  options.plan.zero = {held.stage};
  options.plan.training = false;
  options.plan.shared_weights = held.shared;
  return options;
}

/// A data file of `count` rows that goes away.
class RowsFile {
 public:
  explicit RowsFile(size_t count)
      : path_(std::filesystem::temp_directory_path() / ("lockstep_rows_" + std::to_string(::getpid()) + ".jsonl")) {
    std::ofstream out(path_);
    for (size_t i = 0; i < count; ++i) out << "{\"query\": \"" << i << "\"}\n";
  }
  ~RowsFile() { std::filesystem::remove(path_); }
  RowsFile(const RowsFile&) = delete;
  RowsFile& operator=(const RowsFile&) = delete;
  Dataset open() const { return Dataset({path_.string()}, {}); }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::test
