// What a check has found: fine, worth a word, or in the way, and then what repairs it. A report is the list of them.
//
// Example:
//   CheckReport report([](const CheckResult& result) { std::cout << as_line(result); });
//   report.run("machine", "disk", [&] { return CheckResults{judge_disk(disk_facts(dir))}; });
//   return static_cast<int>(report.code());
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {

enum class Level : uint8_t { kOk, kWarning, kFailure };
std::string_view level_name(Level level);  // "ok", "warning", "failure"

struct CheckResult {
  std::string name;  // "open files"
  Level level = Level::kOk;
  std::string text;                // what was found, with numbers
  std::string cure;                // the command or the step that repairs it; empty when nothing is wrong
  ExitCode code = ExitCode::kOk;   // of a failure
  std::vector<std::string> table;  // further lines for people
  std::string check;               // "machine": set by CheckReport
  std::string where;               // "node 1 (host)"; empty: the first node
  bool operator==(const CheckResult&) const = default;
};
using CheckResults = std::vector<CheckResult>;

CheckResult fine(std::string name, std::string text);
CheckResult warning(std::string name, std::string text, std::string cure);
CheckResult failure(std::string name, std::string text, std::string cure, ExitCode code);

/// What an exception means as a result: its message, and its hint as the cure.
CheckResult failure_of(std::string name, const std::exception& error);

/// `warning  machine     open files       …`, the cure in a line below, then the table.
std::string as_line(const CheckResult& result);

Json as_json(const CheckResult& result);
CheckResult result_from(const Json& json);

class CheckReport {
 public:
  /// `told` hears each result as soon as it is there.
  explicit CheckReport(std::function<void(const CheckResult&)> told = {});

  /// Runs a check; one that throws becomes a failure called `name`, so that no check stops the next.
  void run(const std::string& check, const std::string& name, const std::function<CheckResults()>& look);
  void add(CheckResult result);

  const CheckResults& results() const { return results_; }
  int64_t count(Level level) const;
  ExitCode code() const;        // of the first failure; kOk without one
  std::string summary() const;  // "12 checks: 10 ok, 1 warning, 1 failure"

 private:
  std::function<void(const CheckResult&)> told_;
  CheckResults results_;
};

}  // namespace lockstep
