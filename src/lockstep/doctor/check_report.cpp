#include "lockstep/doctor/check_report.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/failure.h"
#include "lockstep/base/json_fields.h"

namespace lockstep {
namespace {

constexpr const char* kIndent = "         ";  // below the name of the check

}  // namespace

std::string_view level_name(Level level) {
  return level == Level::kOk ? "ok" : level == Level::kWarning ? "warning" : "failure";
}

CheckResult fine(std::string name, std::string text) { return {.name = std::move(name), .text = std::move(text)}; }

CheckResult warning(std::string name, std::string text, std::string cure) {
  return {.name = std::move(name), .level = Level::kWarning, .text = std::move(text), .cure = std::move(cure)};
}

CheckResult failure(std::string name, std::string text, std::string cure, ExitCode code) {
  return {.name = std::move(name),
          .level = Level::kFailure,
          .text = std::move(text),
          .cure = std::move(cure),
          .code = code};
}

CheckResult failure_of(std::string name, const std::exception& error) {
  const Failure told = describe_failure(error);
  return failure(std::move(name), told.message,
                 told.hint.empty() ? "what is said here is all that is known: mend it and run doctor again" : told.hint,
                 told.code);
}

std::string as_line(const CheckResult& result) {
  const std::string where = result.where.empty() ? "" : result.where + ": ";
  std::string out = fmt::format("{:<8} {:<11} {:<15} {}{}\n", level_name(result.level), result.check, result.name,
                                where, result.text);
  if (!result.cure.empty()) out += fmt::format("{}-> {}\n", kIndent, result.cure);
  for (const auto& line : result.table) out += kIndent + line + "\n";
  return out;
}

static void describe(CheckResult& result, JsonFields& f) {
  int code = static_cast<int>(result.code);
  f("check", result.check);
  f("name", result.name);
  f.named("level", result.level, level_name, Level::kFailure);
  f("text", result.text);
  f.nullable("cure", result.cure, !result.cure.empty());
  f("exit_code", code);
  f.optional("where", result.where, !result.where.empty());
  f.optional("table", result.table, !result.table.empty());
  result.code = static_cast<ExitCode>(code);
}

Json as_json(const CheckResult& result) { return json_of(result); }
CheckResult result_from(const Json& json) { return record_of<CheckResult>(json, JsonReading::kStrict); }

CheckReport::CheckReport(std::function<void(const CheckResult&)> told) : told_(std::move(told)) {}

void CheckReport::run(const std::string& check, const std::string& name, const std::function<CheckResults()>& look) {
  CheckResults found;
  try {
    found = look();
  } catch (const std::exception& error) {
    found = {failure_of(name, error)};
  }
  for (auto& result : found) {
    result.check = check;
    add(std::move(result));
  }
}

void CheckReport::add(CheckResult result) {
  results_.push_back(std::move(result));
  if (told_) told_(results_.back());
}

int64_t CheckReport::count(Level level) const {
  return std::count_if(results_.begin(), results_.end(), [&](const CheckResult& f) { return f.level == level; });
}

ExitCode CheckReport::code() const {
  const auto first =
      std::find_if(results_.begin(), results_.end(), [](const CheckResult& f) { return f.level == Level::kFailure; });
  return first == results_.end() ? ExitCode::kOk : first->code;
}

std::string CheckReport::summary() const {
  const auto counted = [](int64_t n, const char* word) { return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s"); };
  return fmt::format("{}: {} ok, {}, {}", counted(static_cast<int64_t>(results_.size()), "check"), count(Level::kOk),
                     counted(count(Level::kWarning), "warning"), counted(count(Level::kFailure), "failure"));
}

}  // namespace lockstep
