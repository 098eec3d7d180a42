// What the number of a flag must be, and the words that say so when it is not: "expected a number above 0, found
// "nan"". Every flag that takes a number has such bounds; parse_flags() holds that.
//
// Example:
//   app.add_option("--save_steps", steps, "")->check(whole_number(1));
//   app.add_option("--adam_beta1", beta, "")->check(real_number({.least = 0, .below = 1}));
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class Validator;
}  // namespace CLI

namespace lockstep {

/// Steps, rows and tokens up to here can be added and multiplied by small numbers without leaving 64 bits; more is a
/// slip of the finger.
inline constexpr int64_t kMostCount = 1'000'000'000'000;
inline constexpr int64_t kMostTokens = 100'000'000, kMostNewTokens = kMostTokens;
inline constexpr int64_t kMostLocalRanks = 4096, kMostRanks = 1 << 20;
inline constexpr double kMostEpochs = 1e6, kMostSeconds = 1e9;

/// `least` and `most` belong to the range, `above` and `below` do not. What is not finite is in no range.
struct NumberRange {
  std::optional<double> least{}, above{}, most{}, below{};

  bool holds(double value) const;
  std::string words() const;  // "a number above 0 and below 1"
};

/// What `text` is not, as "expected a number above 0, found "abc""; empty: it is one of the range.
std::string number_fault(const std::string& text, const NumberRange& range);
std::string whole_number_fault(const std::string& text, int64_t least, int64_t most);

/// For CLI::Option::check.
CLI::Validator real_number(const NumberRange& range);
CLI::Validator whole_number(int64_t least, int64_t most = kMostCount);
/// Any seed that is no slip.
CLI::Validator seed_number();

}  // namespace lockstep
