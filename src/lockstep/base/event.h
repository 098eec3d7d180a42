// What happened, as plain values, and who listens. Rooms emit; watch/ subscribes; nobody knows the listeners.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/communication.h"
#include "lockstep/base/memory_account.h"

namespace lockstep {

/// The run begins: what the report prints at its top. `args` and `plan` are JSON texts.
struct RunStarted {
  std::string verb, output_dir, model_family, args_json, plan_json, plan_text;
  int world_size = 1;
  int64_t start_step = 0, max_steps = 0, num_params = 0, num_trainable_params = 0;
};

/// One optimizer step, at logging steps, already agreed over ranks. loss is the mean per trained token since the last
/// one; memory in bytes; one entry a rank in `peak_bytes` and `predicted_bytes` (empty: no prediction).
struct StepDone {
  int64_t step = 0, max_steps = 0;
  double epoch = 0, loss = 0, grad_norm = 0, learning_rate = 0, token_accuracy = -1;  // -1, NaN: not measured
  double talker_loss = -1;  // the mean per code of speech, over the steps that had some; loss holds it, weighted
  double tokens_per_second = 0, seconds_per_step = 0, elapsed_seconds = 0, remaining_seconds = 0, loss_scale = 0;
  int64_t tokens_seen = 0, samples_seen = 0, skipped_rows = 0;
  int64_t tokens_computed = 0;  // tokens_seen and padding; 0: of a record that does not say
  std::vector<int64_t> peak_bytes, predicted_bytes;
  double cpu_seconds_per_step = 0;                          // this rank, all threads
  double gather_wait_seconds = 0, reduce_wait_seconds = 0;  // this rank, per step since the last record
  int64_t gather_bytes = 0, reduce_bytes = 0;
  std::vector<std::pair<std::string, double>> component_rates;  // of components with a learning rate of their own
};

/// Memory of every rank, beside what was predicted: behind each StepDone, and once more when the run is over (`last`).
struct MemoryMeasured {
  int64_t step = 0, max_steps = 0;
  bool last = false;
  MemoryAccount predicted;  // of any rank; empty: there is no forecast
  std::vector<RankMemory> ranks;
};

/// A sample that evaluation or the end of training shows to people. image_path may be empty.
struct SamplePrediction {
  std::string prompt, expected, predicted, image_path;
  bool exact = false;
};

/// One evaluation, agreed over ranks. exact_match and token_accuracy are fractions, -1 when not measured.
struct EvalDone {
  int64_t step = 0, num_samples = 0;
  double loss = 0, token_accuracy = -1, exact_match = -1, seconds = 0;
  double talker_loss = -1;  // as of StepDone
  std::vector<SamplePrediction> samples;
  std::vector<std::pair<std::string, double>> groups;   // exact match per kind of question, where rows name one
  std::vector<std::pair<std::string, double>> metrics;  // the others, built in and from metric programs, by name
  double epoch = 0;
};

struct CheckpointSaved {
  int64_t step = 0, bytes = 0;
  std::string path;
  double seconds = 0;
  std::vector<std::string> left = {};  // older ones that could not be removed, and why
};

/// Something a person should know that is not an error (a flag translated, rows skipped). Never silent.
struct Notice {
  std::string text;
};

/// A phase that takes a while: console progress. done == total closes it.
struct Progress {
  std::string phase;
  int64_t done = 0, total = 0;
};

/// A batch size of auto was settled: what was tried, in order, and what was chosen.
struct BatchTry {
  int64_t rows = 0, bytes = 0;  // of the rank that needed most; 0: out of memory
  bool fits = false;
};
struct BatchSized {
  std::vector<BatchTry> tries;
  int64_t rows = 0, limit_bytes = 0;
  double memory_fraction = 0;
};

/// A run that was cut short goes on: so many of its rows are `how` ("done", "answered") already.
struct RowsKept {
  std::string how;
  int64_t kept = 0, total = 0;
};

struct RunEnded {
  std::string outcome;  // "done", "interrupted", or the error's text
  int exit_code = 0;
  double seconds = 0, train_loss = 0, samples_per_second = 0, steps_per_second = 0;
  int64_t step = 0;
  std::string last_checkpoint, next_command;  // the resume or infer command to print
  std::string best_checkpoint;                // of the best evaluation that has one, by whatever it was judged
  std::optional<double> best_metric;   // of that one, else of the best; empty: evaluations are compared by their loss
  CommunicationFigures communication;  // of all ranks; empty when there is one
};

using Event = std::variant<RunStarted, StepDone, MemoryMeasured, EvalDone, CheckpointSaved, Notice, Progress,
                           BatchSized, RowsKept, RunEnded>;

/// One of the seams: console, JSONL, TensorBoard, report. Called on one thread, only on the rank that reports.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on(const Event& event) = 0;
};

/// Sends each event to every sink in order. Borrowed sinks must outlive it.
class EventBus {
 public:
  void add(EventSink& sink) { sinks_.push_back(&sink); }
  void emit(const Event& event) const {
    for (auto* sink : sinks_) sink->on(event);
  }

 private:
  std::vector<EventSink*> sinks_;
};

}  // namespace lockstep
