#include "lockstep/metric/program_values.h"

#include <cmath>
#include <cstring>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

std::string first_bytes(const std::string& text) {
  constexpr size_t kBytes = 120;
  const std::string quoted = Json(text.substr(0, kBytes)).dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kBytes ? quoted + "..." : quoted;
}

std::string with_words(const std::string& message, const ProgramResult& result) {
  const std::string words = last_lines(result.errors);
  return words.empty() ? message + "; it wrote nothing to standard error"
                       : message + "; the end of its standard error:" + words;
}

}  // namespace

Json printed_values(const Program& program, const ProgramResult& result) {
  const std::string who = "--metric " + program.text;
  if (result.endless) {
    throw data_error(fmt::format("{}: expected a JSON object, found {} of output and no end; it was killed", who,
                                 format_bytes(static_cast<int64_t>(result.output.size()))),
                     "print one JSON object, and what is for people to standard error");
  }
  if (result.late) {
    throw data_error(with_words(fmt::format("{}: was still running after {} and was killed", who,
                                            format_duration(std::round(result.seconds))),
                                result),
                     fmt::format("if it is no endless loop, give it more time: --metric_timeout {:.0f}",
                                 std::max(60.0, 10 * std::ceil(result.seconds))));
  }
  const std::string again = "lockstep eval --output predictions.jsonl keeps the rows that it gets, to try it alone";
  if (result.signal != 0) {
    throw data_error(
        with_words(fmt::format("{}: ended by signal {} ({})", who, result.signal, ::strsignal(result.signal)), result),
        again);
  }
  if (result.exit_code != 0) {
    throw data_error(with_words(fmt::format("{}: ended with exit code {}", who, result.exit_code), result), again);
  }
  Json values = parse_json_or_discard(result.output);
  if (values.is_object()) return values;
  throw data_error(
      result.output.empty()
          ? with_words(fmt::format("{}: expected a JSON object on standard output, found nothing", who), result)
          : fmt::format("{}: expected a JSON object on standard output, found {}", who, first_bytes(result.output)),
      "print one object such as {\"accuracy\": 0.5} and nothing else (NaN is not JSON); what is for people goes to "
      "standard error");
}

Json merged_values(const std::vector<std::pair<std::string, Json>>& by_stem, const std::vector<std::string>& taken) {
  std::map<std::string, int> uses;
  for (const auto& name : taken) ++uses[name];
  for (const auto& [stem, values] : by_stem) {
    for (const auto& item : values.items()) ++uses[item.key()];
  }
  Json merged = Json::object();
  for (const auto& [stem, values] : by_stem) {
    for (const auto& item : values.items()) {
      std::string name = uses[item.key()] > 1 ? stem + "." + item.key() : item.key();
      const std::string first = name;
      for (int again = 2; merged.contains(name); ++again) name = fmt::format("{}.{}", first, again);
      merged[name] = item.value();
    }
  }
  return merged;
}

}  // namespace lockstep
