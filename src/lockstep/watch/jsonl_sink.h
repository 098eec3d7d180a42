// logging.jsonl: one JSON object a line, under ms-swift v4's key names, so that its tools and habits carry over.
//
// Example:
//   JsonlSink log(output_dir / "logging.jsonl");
//   bus.add(log);
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/base/json.h"

namespace lockstep {

/// Opens the file at RunStarted. A training run (verb "sft") that starts at step S first cuts the records of later
/// steps and the closing records of the run before, so that a resumed curve has no point twice; other verbs append.
class JsonlSink final : public EventSink {
 public:
  explicit JsonlSink(std::filesystem::path path);
  ~JsonlSink() override;

  /// Throws UserError(kCheckpoint) when the file cannot be written.
  void on(const Event& event) override;

 private:
  void start(const RunStarted& run);
  void end(const RunEnded& run);
  void remember_best(const EvalDone& eval);
  void write(const Json& record);

  std::filesystem::path path_;
  std::ofstream file_;
  std::vector<Json> history_;
  RunStarted run_;
  double epoch_ = 0, best_loss_ = std::numeric_limits<double>::infinity();
  int64_t best_step_ = -1, max_steps_ = 0, peak_bytes_ = 0;
  std::string best_checkpoint_, last_checkpoint_;
};

}  // namespace lockstep
