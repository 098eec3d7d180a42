#include "lockstep/tasks/metric_programs.h"

#include <cmath>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/together.h"
#include "lockstep/metric/program_values.h"

namespace lockstep {
namespace {

constexpr auto kBeat = std::chrono::seconds(1);
constexpr double kFirstNotice = 2;

/// The programs one behind the other, a beat at a time.
class Queue {
 public:
  Queue(const std::vector<Program>& programs, const InputFile& rows, double timeout_s, const EventBus& events)
      : programs_(programs), rows_(rows), timeout_s_(timeout_s), events_(events) {}

  /// True when there is more to do.
  bool advance() {
    if (values_.size() == programs_.size()) return false;
    const Program& program = programs_[values_.size()];
    if (run_ == nullptr) {
      run_ = std::make_unique<ProgramRun>(
          program, rows_, std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_)));
      next_notice_ = kFirstNotice;
    }
    if (run_->advance(kBeat)) {
      values_.emplace_back(program.stem(), printed_values(program, run_->result()));
      const std::string words = last_lines(run_->result().errors);
      if (!words.empty()) tell(fmt::format("--metric {} wrote to standard error:{}", program.text, words));
      run_.reset();
      return values_.size() < programs_.size();
    }
    if (run_->seconds() >= next_notice_) {
      tell(fmt::format("--metric {} has been running for {} (--metric_timeout {:g})", program.text,
                       format_duration(std::floor(run_->seconds())), timeout_s_));
      next_notice_ *= 2;
    }
    return true;
  }

  std::vector<std::pair<std::string, Json>> values() && { return std::move(values_); }

 private:
  void tell(const std::string& text) const { events_.emit(Notice{text}); }

  const std::vector<Program>& programs_;
  const InputFile& rows_;
  double timeout_s_;
  const EventBus& events_;
  std::unique_ptr<ProgramRun> run_;
  double next_notice_ = kFirstNotice;
  std::vector<std::pair<std::string, Json>> values_;
};

}  // namespace

std::vector<std::pair<std::string, Json>> run_metric_programs(Communicator& control,
                                                              const std::vector<Program>& programs,
                                                              const InputFile& rows, double timeout_s,
                                                              const EventBus& events) {
  const PhaseScope scope(control.recorder(), Phase::kEvaluate, "metric programs");
  Queue queue(programs, rows, timeout_s, events);
  std::optional<Failure> failure;
  const std::string more = "more";
  for (std::string word = more; word == more;) {
    word.clear();
    if (control.rank() == 0) {
      try {
        if (queue.advance()) word = more;
      } catch (const std::exception& error) {
        failure = describe_failure(error);
      }
    }
    word = from_rank_0(control, word, "metric programs run");
  }
  agree_no_failure(control, "metric programs", failure);
  return std::move(queue).values();
}

}  // namespace lockstep
