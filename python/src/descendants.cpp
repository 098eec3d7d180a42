#include "descendants.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

namespace lockstep::python {
namespace fs = std::filesystem;

void kill_descendants() {
  std::map<pid_t, std::vector<pid_t>> children;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename().string();
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t after = text.rfind(") ");
    if (after == std::string::npos || after + 4 >= text.size()) continue;
    children[std::atoi(text.c_str() + after + 4)].push_back(std::atoi(name.c_str()));
  }
  std::vector<pid_t> open{::getpid()};
  for (size_t i = 0; i < open.size(); ++i) {
    for (const pid_t child : children[open[i]]) open.push_back(child);
  }
  for (size_t i = 1; i < open.size(); ++i) ::kill(open[i], SIGKILL);
}

}  // namespace lockstep::python
