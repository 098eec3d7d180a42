// report.html, rewritten as a whole while the run goes on and once more at its end, also after an error.
//
// Example:
//   ReportSink report({.page = output_dir / "report.html", .log = output_dir / "logging.jsonl"});
//   bus.add(report);
#pragma once

#include <filesystem>
#include <functional>

#include "lockstep/base/event.h"
#include "lockstep/watch/run_history.h"

namespace lockstep {

struct ReportOptions {
  std::filesystem::path page;
  std::filesystem::path log;      // a resumed run reads its earlier curves from here; may be empty
  double pause_seconds = 10;      // between two writings
  std::function<double()> now{};  // seconds; empty: the steady clock
};

class ReportSink final : public EventSink {
 public:
  explicit ReportSink(ReportOptions options);

  /// Throws UserError(kCheckpoint) when the page cannot be written.
  void on(const Event& event) override;

 private:
  void start(const RunStarted& run);
  void write();

  ReportOptions options_;
  RunHistory history_;
  bool started_ = false;
  double last_write_ = 0;
};

}  // namespace lockstep
