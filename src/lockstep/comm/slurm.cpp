#include "lockstep/comm/slurm.h"

#include <charconv>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/world.h"

namespace lockstep {
namespace {

constexpr int64_t kMostHosts = 100000;  // more is a typing error, not a cluster

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

[[noreturn]] void refuse(const std::string& node_list, const std::string& why) {
  throw usage_error(fmt::format("Slurm node list \"{}\": {}", node_list, why), "set MASTER_ADDR to the first host");
}

/// Splits at commas outside brackets.
std::vector<std::string> top_level(const std::string& node_list) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : node_list) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (depth < 0 || depth > 1) refuse(node_list, "brackets do not match");
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (depth != 0) refuse(node_list, "brackets do not match");
  return parts;
}

/// One part with at most a few bracket groups, expanded from the left.
void expand_part(const std::string& part, const std::string& node_list, std::vector<std::string>& hosts) {
  const size_t open = part.find('[');
  if (open == std::string::npos) {
    if (!part.empty()) hosts.push_back(part);
    return;
  }
  const size_t close = part.find(']', open);
  const std::string head = part.substr(0, open);
  const std::string tail = part.substr(close + 1);
  for (const auto& range : split(part.substr(open + 1, close - open - 1), ',')) {
    const size_t dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const auto low = parse_number(first);
    const auto high = dash == std::string::npos ? low : parse_number(std::string_view(range).substr(dash + 1));
    if (!low || !high || *high < *low || *high - *low > kMostHosts) {
      refuse(node_list, fmt::format("\"{}\" is no range of numbers", range));
    }
    for (int64_t i = *low; i <= *high; ++i) {
      expand_part(fmt::format("{}{:0{}}{}", head, i, first.size(), tail), node_list, hosts);
    }
  }
}

}  // namespace

std::vector<std::string> expand_slurm_hosts(const std::string& node_list) {
  std::vector<std::string> hosts;
  for (const auto& part : top_level(node_list)) expand_part(part, node_list, hosts);
  return hosts;
}

std::string first_slurm_host(const std::string& node_list) {
  const auto hosts = expand_slurm_hosts(node_list);
  if (hosts.empty()) refuse(node_list, "no host in it");
  return hosts.front();
}

std::optional<int64_t> slurm_tasks_on_node(const std::string& tasks_per_node, int node) {
  int64_t first = 0;
  for (const auto& part : split(tasks_per_node, ',')) {
    const size_t open = part.find("(x");
    const auto tasks = parse_number(std::string_view(part).substr(0, open));
    std::optional<int64_t> repeat = 1;
    if (open != std::string::npos)
      repeat = parse_number(std::string_view(part).substr(open + 2, part.size() - open - 3));
    if (!tasks || !repeat) return std::nullopt;
    first += *repeat;
    if (node < first) return tasks;
  }
  return std::nullopt;
}

}  // namespace lockstep
