#include "lockstep/cli/number_bounds.h"

#include <charconv>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

/// The whole of `text` as a number; nullopt: it is none, or none that the type holds.
template <typename T>
std::optional<T> number_from(const std::string& text) {
  T value{};
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* const end = text.data() + text.size();
  if (std::is_integral_v<T> && end - begin > 1 && *begin == '0') return std::nullopt;  // "010" is 8 to some readers
  const auto [rest, failure] = std::from_chars(begin, end, value);
  if (failure != std::errc() || rest != end) return std::nullopt;
  return value;
}

CLI::Validator without_name(std::function<std::string(std::string&)> fault) { return {std::move(fault), ""}; }

}  // namespace

bool NumberRange::holds(double value) const {
  return std::isfinite(value) && (!least || value >= *least) && (!above || value > *above) &&
         (!most || value <= *most) && (!below || value < *below);
}

std::string NumberRange::words() const {
  if (least && most) return fmt::format("a number from {} to {}", *least, *most);
  std::vector<std::string> parts;
  if (least) parts.push_back(fmt::format("of at least {}", *least));
  if (above) parts.push_back(fmt::format("above {}", *above));
  if (most) parts.push_back(fmt::format("at most {}", *most));
  if (below) parts.push_back(fmt::format("below {}", *below));
  return parts.empty() ? "a number" : "a number " + join(parts, " and ");
}

std::string number_fault(const std::string& text, const NumberRange& range) {
  const auto value = number_from<double>(text);
  if (value && range.holds(*value)) return {};
  return fmt::format("expected {}, found \"{}\"", range.words(), text);
}

std::string whole_number_fault(const std::string& text, int64_t least, int64_t most) {
  const auto value = number_from<int64_t>(text);
  if (value && *value >= least && *value <= most) return {};
  const bool slip = most == kMostCount && !(value && *value > most);  // the upper end is worth no words
  return fmt::format("expected a whole number {}, found \"{}\"",
                     slip ? fmt::format("of at least {}", least) : fmt::format("from {} to {}", least, most), text);
}

CLI::Validator real_number(const NumberRange& range) {
  return without_name([range](std::string& text) { return number_fault(text, range); });
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  return without_name([least, most](std::string& text) { return whole_number_fault(text, least, most); });
}

CLI::Validator seed_number() { return whole_number(0, std::numeric_limits<int64_t>::max()); }

}  // namespace lockstep
