#include "lockstep/doctor/check_report.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/failure.h"

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

Json as_json(const CheckResult& result) {
  Json json = {{"check", result.check},
               {"name", result.name},
               {"level", level_name(result.level)},
               {"text", result.text},
               {"cure", result.cure.empty() ? Json() : Json(result.cure)},
               {"exit_code", static_cast<int>(result.code)}};
  if (!result.where.empty()) json["where"] = result.where;
  if (!result.table.empty()) json["table"] = result.table;
  return json;
}

CheckResult result_from(const Json& json) {
  const std::string level = json.at("level").get<std::string>();
  CheckResult result{.name = json.at("name").get<std::string>(),
                     .level = level == "ok"        ? Level::kOk
                              : level == "warning" ? Level::kWarning
                                                   : Level::kFailure,
                     .text = json.at("text").get<std::string>(),
                     .cure = json.at("cure").is_null() ? "" : json.at("cure").get<std::string>(),
                     .code = static_cast<ExitCode>(json.at("exit_code").get<int>()),
                     .check = json.at("check").get<std::string>(),
                     .where = json.value("where", "")};
  if (json.contains("table")) result.table = json.at("table").get<std::vector<std::string>>();
  return result;
}

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
