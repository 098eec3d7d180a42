#include "lockstep/watch/report_memory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"
#include "lockstep/watch/html.h"
#include "lockstep/watch/memory_summary.h"

namespace lockstep {
namespace {

constexpr size_t kMostRanks = 4;     // with a bar of their own on each device; of more: the highest and the lowest
constexpr size_t kMostDevices = 16;  // with bars
constexpr double kFarAway = 3;       // capacities beyond so many times what is needed are told, not drawn

/// Uses with a colour each; others share the last.
constexpr std::array<std::pair<std::string_view, int>, 7> kColours{{{"parameters", 0},
                                                                    {"gradients", 1},
                                                                    {"optimizer", 3},
                                                                    {"gathered", 5},
                                                                    {"activations", 2},
                                                                    {"logits", 4},
                                                                    {"communication", 7}}};

int colour_of(std::string_view use) {
  const auto* found = std::ranges::find(kColours, use, [](const auto& entry) { return entry.first; });
  return found == kColours.end() ? 6 : found->second;
}

/// A device as it was predicted and as each rank has measured it; nullptr: not.
struct Compared {
  std::string name;
  const DeviceAccount* predicted = nullptr;
  std::vector<std::pair<int, const DeviceAccount*>> ranks;  // the fullest first

  int64_t capacity() const {
    if (predicted != nullptr && predicted->capacity > 0) return predicted->capacity;
    return ranks.empty() ? 0 : ranks.front().second->capacity;
  }
  int64_t highest() const {
    const int64_t measured = ranks.empty() ? 0 : ranks.front().second->peak_bytes();
    return std::max(measured, predicted == nullptr ? 0 : predicted->peak_bytes());
  }
};

std::vector<Compared> compared(const MemoryMeasured& memory) {
  std::vector<Compared> out;
  const auto at = [&](size_t index) -> Compared& {
    if (out.size() <= index) out.resize(index + 1);
    return out[index];
  };
  const auto predicted = memory.predicted.everything();
  for (size_t i = 0; i < predicted.size(); ++i) {
    at(i).predicted = predicted[i];
    at(i).name = predicted[i]->name;
  }
  for (size_t rank = 0; rank < memory.ranks.size(); ++rank) {
    const auto devices = memory.ranks[rank].since_start.everything();
    for (size_t i = 0; i < devices.size(); ++i) {
      at(i).ranks.emplace_back(static_cast<int>(rank), devices[i]);
      at(i).name = devices[i]->name;
    }
  }
  for (Compared& device : out) {
    std::ranges::stable_sort(device.ranks, std::greater<>(), [](const auto& r) { return r.second->peak_bytes(); });
  }
  std::erase_if(out, [](const Compared& device) { return device.highest() == 0; });
  return out;
}

/// How wide a byte is: the longest bar, or a capacity that is not far beyond it, fills the track.
double scale_of(const std::vector<Compared>& devices) {
  int64_t longest = 1, room = 0;
  for (const auto& device : devices) {
    longest = std::max(longest, device.highest());
    room = std::max(room, device.capacity());
  }
  const bool near = static_cast<double>(room) <= kFarAway * static_cast<double>(longest);
  return static_cast<double>(std::max(longest, near ? room : 0)) * 1.02;
}

double share(int64_t bytes, double scale) { return static_cast<double>(bytes) / scale * 100; }

std::string segments(const PhaseMemory& peak, double scale) {
  std::string out;
  int64_t rest = peak.bytes;
  const auto add = [&](const std::string& use, int64_t bytes, int colour) {
    out += fmt::format(R"(<i class="s{}" style="width:{:.2f}%" title="{} {}"></i>)", colour, share(bytes, scale),
                       escape_html(use), format_bytes(bytes));
  };
  for (const auto& [use, bytes] : peak.by_use) {
    add(use, bytes, colour_of(use));
    rest -= bytes;
  }
  if (rest > 0) add("all uses", rest, 6);  // a GPU counts them together
  return out;
}

std::string when(const PhaseMemory* peak) {
  if (peak == nullptr) return "";
  return escape_html(peak->phase + (peak->at.empty() ? "" : ", " + peak->at));
}

std::string bar_row(const std::string& label, const DeviceAccount& device, const std::string& marks, double scale,
                    const char* kind) {
  const PhaseMemory* peak = device.peak();
  return fmt::format(R"(<tr class="{}"><td>{}</td><td><div class="track stack">{}{}</div></td><td class="num">{}</td>)"
                     R"(<td>{}</td></tr>)",
                     kind, label, peak == nullptr ? "" : segments(*peak, scale), marks,
                     format_bytes(device.peak_bytes()), when(peak));
}

/// A line at each rank's measured peak, and one at what the device has.
std::string marks_of(const Compared& device, double scale) {
  std::string out;
  for (const auto& [rank, account] : device.ranks) {
    out += fmt::format(R"(<b style="left:{:.2f}%" title="rank {} measured {}"></b>)",
                       share(account->peak_bytes(), scale), rank, format_bytes(account->peak_bytes()));
  }
  if (device.capacity() > 0 && share(device.capacity(), scale) <= 100) {
    out += fmt::format(R"(<b class="has" style="left:{:.2f}%" title="has {}"></b>)", share(device.capacity(), scale),
                       format_bytes(device.capacity()));
  }
  return out;
}

std::string bars_of(const Compared& device, double scale) {
  std::string out =
      fmt::format(R"(<tr class="head"><th>{}</th><th></th><th></th><th></th></tr>)",
                  escape_html(device.name) +
                      (device.capacity() > 0 ? " <small>has " + format_bytes(device.capacity()) + "</small>" : ""));
  if (device.predicted != nullptr) {
    out += bar_row("predicted", *device.predicted, marks_of(device, scale), scale, "predicted");
  }
  std::vector<std::pair<int, const DeviceAccount*>> shown = device.ranks;
  if (shown.size() > kMostRanks) shown = {shown.front(), shown.back()};
  for (const auto& [rank, account] : shown) {
    const std::string most = shown.size() == device.ranks.size() ? ""
                             : rank == shown.front().first       ? ", highest"
                                                                 : ", lowest";
    out += bar_row(fmt::format("rank {}{}", rank, most), *account, "", scale, "measured");
  }
  return out;
}

std::string legend(const std::vector<Compared>& devices, bool marks) {
  std::string out = R"(<p class="legend uses">)";
  for (const auto& [use, colour] : kColours) {
    const auto needs = [&, name = use](const DeviceAccount* account) {
      return account != nullptr && account->peak() != nullptr &&
             std::ranges::any_of(account->peak()->by_use, [&](const auto& entry) { return entry.first == name; });
    };
    const bool any = std::ranges::any_of(devices, [&](const Compared& device) {
      return needs(device.predicted) ||
             std::ranges::any_of(device.ranks, [&](const auto& rank) { return needs(rank.second); });
    });
    if (any) out += fmt::format(R"(<span><i class="key box s{}"></i>{}</span>)", colour, use);
  }
  if (marks) out += R"(<span><i class="key tickmark"></i>measured peak of a rank</span>)";
  return out + "</p>";
}

std::string difference(int64_t predicted, int64_t measured) {
  if (predicted == 0 || measured == 0) return "";
  const double excess = static_cast<double>(measured) / static_cast<double>(predicted) - 1;
  return std::abs(excess) < 5e-4 ? "0.0%" : fmt::format("{:+.1f}%", excess * 100);
}

std::string phase_row(const std::string& name, int64_t predicted, int64_t measured, int rank, const char* kind) {
  const auto cell = [](int64_t bytes) { return bytes == 0 ? std::string("–") : format_bytes(bytes); };
  return fmt::format(
      R"(<tr class="{}"><td>{}</td><td class="num">{}</td><td class="num">{}</td><td class="num">{}</td>)"
      R"(<td class="num">{}</td></tr>)",
      kind, escape_html(name), cell(predicted), cell(measured), difference(predicted, measured),
      rank < 0 ? "" : std::to_string(rank));
}

/// Of each phase what was predicted, and what the rank measured that needed most.
std::string phases_of(const Compared& device) {
  std::vector<std::string> names;
  const auto add = [&](const DeviceAccount* account) {
    if (account == nullptr) return;
    for (const auto& phase : account->phases) {
      if (std::ranges::find(names, phase.phase) == names.end()) names.push_back(phase.phase);
    }
  };
  add(device.predicted);
  for (const auto& rank : device.ranks) add(rank.second);
  std::string out;
  for (const auto& name : names) {
    const PhaseMemory* predicted = device.predicted == nullptr ? nullptr : device.predicted->find(name);
    int64_t most = 0;
    int who = -1;
    for (const auto& [rank, account] : device.ranks) {
      const PhaseMemory* phase = account->find(name);
      if (phase == nullptr || phase->bytes <= most) continue;
      most = phase->bytes;
      who = rank;
    }
    out += phase_row(name, predicted == nullptr ? 0 : predicted->bytes, most, who, "");
  }
  const bool measured = !device.ranks.empty();
  return out + phase_row("peak", device.predicted == nullptr ? 0 : device.predicted->peak_bytes(),
                         measured ? device.ranks.front().second->peak_bytes() : 0,
                         measured ? device.ranks.front().first : -1, "total");
}

std::string phase_table(const std::vector<Compared>& devices) {
  std::string out =
      R"(<details open><summary>Peaks by phase</summary><div class="card narrow"><table class="phases"><tr><th>Phase</th>)"
      R"(<th class="num">Predicted</th><th class="num">Measured</th><th class="num">Difference</th>)"
      R"(<th class="num">Rank</th></tr>)";
  for (const auto& device : devices) {
    out += fmt::format(R"(<tr class="head"><th colspan="5">{}</th></tr>)", escape_html(device.name));
    out += phases_of(device);
  }
  out += "</table></div></details>\n";
  return out;
}

std::string facts(const MemoryMeasured& memory, const std::vector<Compared>& devices) {
  std::string out = R"(<p class="facts spaced">)";
  const auto fact = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) out += fmt::format("<span>{} <b>{}</b></span>", name, escape_html(value));
  };
  fact("predicted for", memory.predicted.batch);
  if (!memory.ranks.empty() && !devices.empty() && !devices.front().ranks.empty()) {
    const auto rank = static_cast<size_t>(devices.front().ranks.front().first);
    fact("largest batch measured", memory.ranks[rank].since_start.batch);
    int64_t resident = 0;
    for (const auto& one : memory.ranks) resident = std::max(resident, one.resident_peak_bytes);
    fact("a process at most", resident == 0 ? "" : format_bytes(resident) + " resident");
  }
  return out + "</p>";
}

}  // namespace

std::string memory_section(const MemoryMeasured& memory) {
  const std::vector<Compared> devices = compared(memory);
  if (devices.empty()) return {};
  const double scale = scale_of(devices);
  const bool marks = !memory.predicted.empty() && !memory.ranks.empty();
  std::string out = "<h2>Memory</h2>\n" + facts(memory, devices) + R"(<div class="card">)" + legend(devices, marks) +
                    R"(<table class="memory">)";
  for (size_t i = 0; i < std::min(devices.size(), kMostDevices); ++i) out += bars_of(devices[i], scale);
  out += "</table>";
  if (devices.size() > kMostDevices) {
    out +=
        fmt::format(R"(<p class="note">{} more devices stand in the table below.</p>)", devices.size() - kMostDevices);
  }
  return out + "</div>\n" + phase_table(devices);
}

std::string report_memory_html(const Json& forecast, const Json& measured) {
  MemoryMeasured memory;
  memory.predicted = memory_account_from(forecast);
  if (!measured.is_object()) return memory_section(memory);
  if (memory.predicted.empty()) memory.predicted = memory_account_from(measured.value("predicted", Json()));
  for (const auto& rank : measured.value("ranks", Json::array())) memory.ranks.push_back(rank_memory_from(rank));
  return memory_section(memory);
}

}  // namespace lockstep
