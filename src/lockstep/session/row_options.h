// How the rows of a data set are read and prepared: what training, evaluation, generation and embedding share.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/processor.h"
#include "lockstep/session/job.h"
#include "lockstep/session/run_options.h"

namespace lockstep {

struct RowOptions {
  int64_t max_length = 0;  // tokens of a row; 0: as many as the model has positions
  Truncation truncation = Truncation::kDelete;
  bool strict = false;  // stop at the first row that cannot be used, instead of skipping it
  uint64_t seed = 42;   // of the order of rows and of sampling
  int num_workers = 1;  // threads that prepare rows; 0: none
  MediaOptions media;
  Taught taught;               // which tokens are learnt
  std::string system;          // message of rows that have none; empty: none is put there
  bool speaks = false;         // a talker learns what rows are to say
  std::string root_image_dir;  // where relative media are looked for behind the data file's folder; empty: nowhere
  bool draws_rows = false;     // of "path#N" by data_seed; else the first N
  uint64_t data_seed = 42;
  int64_t max_samples = 0;                                   // rows of each data set, the first; 0: all
  std::vector<std::string> infos;                            // files that give data sets names
  std::string dataset_dir;                                   // has LLaMA-Factory's dataset_info.json
  std::vector<std::pair<std::string, std::string>> columns;  // a file's name of a column, and what it is

  DatasetOptions dataset() const;
  ProcessOptions process() const;
  /// This rank's loader; order and kind of features are the caller's to set.
  LoaderOptions loader(const Job& job, const RunOptions& run, int64_t batch_size) const;
  Json as_json() const;  // what rows become depends on it: for comparing runs
};

}  // namespace lockstep
