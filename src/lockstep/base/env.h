// The environment as a value: read once in main, passed on, replaced by a literal in tests.
//
// Example:
//   const Env env = Env::process();
//   const auto rank = env.integer("RANK");            // nullopt when unset; UsageError when it is not a number
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

class Env {
 public:
  Env() = default;
  explicit Env(std::map<std::string, std::string> values);
  static Env process();

  bool has(const std::string& name) const;
  std::optional<std::string> text(const std::string& name) const;  // an empty value counts as unset
  std::optional<int64_t> integer(const std::string& name) const;   // throws UserError(kUsage) when not an integer
  std::optional<bool> flag(const std::string& name) const;         // 1/true/yes/on, 0/false/no/off
  const std::map<std::string, std::string>& all() const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace lockstep
