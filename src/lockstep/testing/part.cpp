#include "lockstep/testing/part.h"

#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/base/process.h"

namespace lockstep {
namespace {

constexpr const char* kBegin = "LOCKSTEP_TEST_PART_";

}  // namespace

pid_t start_part(const std::string& test, const std::map<std::string, std::string>& variables) {
  std::vector<std::string> environment;
  const Env own = Env::process();
  for (const auto& [name, value] : own.all()) {
    if (!name.starts_with("GTEST_")) environment.push_back(name + "=" + value);  // of shards, say: the part is in one
  }
  for (const auto& [name, value] : variables) environment.push_back(kBegin + name + "=" + value);
  const std::string program = own_executable().string();
  Child child = spawn({.argv = {program, "--gtest_filter=" + test}, .environment = std::move(environment)});
  child.let_go();
  return child.pid();
}

std::optional<std::string> part_variable(const std::string& name) { return Env::process().text(kBegin + name); }

}  // namespace lockstep
