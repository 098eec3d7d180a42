#include "lockstep/dialect/flag_value.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/python_literal.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

using Values = std::vector<std::string>;

UserError unexpected(const GivenFlag& flag, const std::string& expected) {
  const std::string found = flag.values.empty() ? "nothing" : fmt::format("\"{}\"", cut_text(join(flag.values, " ")));
  return usage_error(fmt::format("{}: expected {}, found {}", flag.spelled, expected, found));
}

std::optional<double> number_from(std::string text) {
  std::erase(text, '_');  // 1_000
  if (text.starts_with('+')) text.erase(0, 1);
  double value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Digits of a number that has no others: 2e8, 500.0.
std::optional<std::string> whole_from(const std::string& text) {
  constexpr double kExact = 9007199254740992.0;  // whole numbers beyond are not all there
  const auto digits = [](const std::string& word) {
    return std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  if (const std::string bare = text.starts_with('-') ? text.substr(1) : text; !bare.empty() && digits(bare))
    return text;
  const auto value = number_from(text);
  if (!value || std::floor(*value) != *value || std::abs(*value) > kExact) return std::nullopt;
  return fmt::format("{:.0f}", *value);
}

bool is_none(const std::string& word) { return word == "None" || word == "null" || word == "none"; }

/// "[]", ["a", "b"] and ['a'] as one word: their items.
Values items_of(const Values& values) {
  if (values.size() != 1 || !values[0].starts_with('[')) return values;
  const Json json = literal_from(values[0]);
  if (!json.is_array()) return values;
  Values out;
  for (const auto& item : json) out.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  return out;
}

std::string only_value(const GivenFlag& flag, const std::string& expected) {
  if (flag.values.size() != 1) throw unexpected(flag, expected);
  return flag.values[0];
}

std::string truth_of(const GivenFlag& flag) {
  if (flag.values.empty()) return "true";  // a bare flag
  const std::string word = only_value(flag, "true or false");
  if (is_true(word)) return "true";
  if (is_false(word)) return "false";
  throw unexpected(flag, "true or false");
}

std::string whole_of(const GivenFlag& flag) {
  const auto whole = whole_from(only_value(flag, "a whole number"));
  if (!whole) throw unexpected(flag, "a whole number");
  return *whole;
}

std::string number_of(const GivenFlag& flag, const std::string& expected) {
  std::string text = only_value(flag, expected);
  const auto value = number_from(text);
  if (!value) throw unexpected(flag, expected);
  std::erase(text, '_');
  return text;
}

/// A count, or a part below one of all steps; a number below 0 stays, and means none.
std::string steps_of(const GivenFlag& flag) {
  const std::string expected = "a number of steps, or a part of all steps between 0 and 1";
  const std::string text = number_of(flag, expected);
  if (const auto whole = whole_from(text)) return *whole;
  if (const double value = *number_from(text); value <= 0 || value >= 1) throw unexpected(flag, expected);
  return text;
}

std::string json_of(const GivenFlag& flag) {
  const std::string text = join(flag.values, " ");
  const Json json = literal_from(text);
  return json.is_object() || json.is_array() ? json.dump() : text;  // a file's name, or a word
}

}  // namespace

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::vector<std::string> trimmed_parts(const std::string& text, char separator) {
  std::vector<std::string> out = split(text, separator);
  for (auto& part : out) {
    const size_t from = part.find_first_not_of(" \t\r\n"), to = part.find_last_not_of(" \t\r\n");
    part = from == std::string::npos ? "" : part.substr(from, to - from + 1);
  }
  return out;
}

bool is_true(const std::string& word) {
  static constexpr std::array kWords = {"true", "1", "yes", "y", "t", "on"};
  return std::ranges::find(kWords, lowered(word)) != kWords.end();
}

bool is_false(const std::string& word) {
  static constexpr std::array kWords = {"false", "0", "no", "n", "f", "off"};
  return std::ranges::find(kWords, lowered(word)) != kWords.end();
}

Json literal_from(const std::string& text) {
  Json json;
  JsonFault fault;
  return try_parse_literal(text, json, fault) ? json : Json(Json::value_t::discarded);
}

std::optional<Values> read_flag_values(FlagKind kind, const GivenFlag& flag) {
  using enum FlagKind;
  const bool one = flag.values.size() == 1;
  if (one && is_none(flag.values[0]) && kind != kWord && kind != kWords) return std::nullopt;
  if (one && (flag.values[0] == "None" || flag.values[0] == "null")) return std::nullopt;
  if (one && flag.values[0].empty() && kind != kWord && kind != kWords && kind != kJson) return std::nullopt;
  if (one && lowered(flag.values[0]) == "auto" && (kind == kLimit || kind == kTruth)) return std::nullopt;
  switch (kind) {
    case kTruth:
      return Values{truth_of(flag)};
    case kWhole:
      return one && lowered(flag.values[0]) == "auto" ? flag.values : Values{whole_of(flag)};
    case kNumber:
      return Values{number_of(flag, "a number")};
    case kSteps:
      return Values{steps_of(flag)};
    case kJson:
      return Values{json_of(flag)};
    case kLimit: {
      const std::string whole = whole_of(flag);
      return whole.starts_with('-') ? std::nullopt : std::optional(Values{whole});
    }
    case kWord:
      if (flag.values.size() > 1) throw unexpected(flag, "one value");
      return flag.values;
    case kWords: {
      Values items = items_of(flag.values);
      return items.empty() && !flag.values.empty() ? std::nullopt : std::optional(std::move(items));
    }
  }
  return flag.values;
}

}  // namespace lockstep
