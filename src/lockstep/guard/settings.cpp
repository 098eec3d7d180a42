#include "lockstep/guard/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

constexpr size_t kMostNamed = 4;

const std::string* value_of(const Settings& job, const char* name) {
  const auto at = job.given.find(name);
  return at == job.given.end() ? nullptr : &at->second;
}

int64_t number_of(const Settings& job, const char* name, int64_t otherwise) {
  const std::string* text = value_of(job, name);
  int64_t number = 0;
  if (text == nullptr || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc()) {
    return otherwise;
  }
  return number;
}

}  // namespace

Settings settings_of(const RankReport& report) {
  Settings out;
  const Json json = parse_json_or_discard(report.facts);
  if (!json.is_object()) return out;
  if (const auto command = json.find("command"); command != json.end() && command->is_string()) {
    out.command = command->get<std::string>();
  }
  const auto settings = json.find("settings");
  if (settings == json.end() || !settings->is_object()) return out;
  for (const auto& [name, value] : settings->items()) {
    if (value.is_string()) out.given[name] = value.get<std::string>();
  }
  return out;
}

std::string shell_word(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./:=,@+%").find(c) != std::string_view::npos || static_cast<unsigned char>(c) >= 0x80;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string as_given(const std::string& name, const std::string& value) {
  if (!name.starts_with("--")) return fmt::format("{}={}", name, value);
  return value.empty() ? name : fmt::format("{} {}", name, value);
}

std::string go_on(const Settings& job) {
  if (job.given.contains(kWatchedFlag)) return "start again from the last checkpoint";
  if (job.command == "sft") {
    return "the same command with --resume_from_checkpoint auto goes on from the last checkpoint";
  }
  if (job.command == "infer" || job.command == "embed") {
    return "give the same command again: rows that are finished are kept";
  }
  if (!job.command.empty()) return "give the same command again";
  return "start again from the last checkpoint (`lockstep sft`: --resume_from_checkpoint auto)";
}

std::string_view world_size_flags(const Settings& job) {
  return job.given.contains(kWatchedFlag) ? "--nproc_per_node, --nnodes" : "--nproc, --nnodes";
}

std::string allow_longer(const Settings& job, std::string_view phase, double seconds) {
  const auto whole = static_cast<int64_t>(std::max(60.0, 2 * std::ceil(seconds)));
  if (job.given.contains(kWatchedFlag)) return fmt::format("LOCKSTEP_GUARD_PATIENCE={}", whole);
  return fmt::format("--patience {}={}", phase, whole);
}

std::string data_workers(const Settings& job) {
  return job.given.contains(kWatchedFlag) ? "num_workers of its DataLoader" : "--dataloader_num_workers";
}

std::string need_less_memory(const Settings& job) {
  constexpr const char* kAnybody =
      "a higher ZeRO stage, gradient checkpointing, a smaller batch or shorter rows need less memory";
  constexpr const char* kPlan = "`lockstep plan` with the same flags shows how much";
  if (job.given.contains(kWatchedFlag)) return kAnybody;
  if (job.command.empty()) return fmt::format("{}; {}", kAnybody, kPlan);
  std::vector<std::string> ways;
  const char* const batch = job.command == "sft" ? "--per_device_train_batch_size" : "--batch_size";
  if (const int64_t rows = number_of(job, batch, 1); rows > 1) ways.push_back(fmt::format("{} {}", batch, rows / 2));
  if (const std::string* stage = value_of(job, "--deepspeed"); stage == nullptr || *stage != "zero3") {
    ways.emplace_back("--deepspeed zero3");
  }
  const std::string* recompute = value_of(job, "--gradient_checkpointing");
  if (job.command == "sft" && recompute != nullptr && (*recompute == "false" || *recompute == "auto")) {
    ways.emplace_back("--gradient_checkpointing true");
  }
  if (ways.empty()) return fmt::format("{}; {}; where other programs have taken it, {}", kAnybody, kPlan, go_on(job));
  return fmt::format("{} needs less memory; {}; {}", fmt::join(ways, ", or "), kPlan, go_on(job));
}

std::string start_alike(const RankSet& who, const Settings& odd, const RankSet& others, const Settings& usual,
                        bool (*wants)(std::string_view name)) {
  std::vector<std::string> with, without;
  for (const auto& [name, value] : usual.given) {
    const auto own = odd.given.find(name);
    if (wants(name) && (own == odd.given.end() || own->second != value)) with.push_back(as_given(name, value));
  }
  for (const auto& [name, value] : odd.given) {
    if (wants(name) && !usual.given.contains(name)) without.push_back(name);
  }
  if (with.empty() && without.empty()) return {};
  if (with.size() + without.size() > kMostNamed) {
    return fmt::format("start {} with the flags of {}: {} of them differ", who.phrase(), others.phrase(),
                       with.size() + without.size());
  }
  return fmt::format("start {}{}{}{}, as {}", who.phrase(),
                     with.empty() ? "" : fmt::format(" with {}", fmt::join(with, " ")),
                     with.empty() || without.empty() ? "" : " and",
                     without.empty() ? "" : fmt::format(" without {}", fmt::join(without, " ")), others.phrase());
}

}  // namespace lockstep
