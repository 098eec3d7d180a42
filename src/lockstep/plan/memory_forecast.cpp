#include "lockstep/plan/memory_forecast.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

using Row = std::vector<std::string>;

constexpr const char* kHostAsDevice = "cpu";  // as rehearse() names the host where blocks are computed there
constexpr int64_t kWorthALine = int64_t{1} << 20;

/// Lines of cells: the first and the last column begin on the left, the others end on the right.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool left = i == 0 || i + 1 == row.size();
      line += "  " + (left ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]));
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string cell(int64_t bytes) { return bytes == 0 ? "-" : format_bytes(bytes); }

BytesOfUses named(const BytesByUse& by_use) {
  BytesOfUses out;
  for (size_t use = 0; use < kMemoryUses; ++use) {
    if (by_use.at(use) != 0) out.emplace_back(memory_use_name(static_cast<MemoryUse>(use)), by_use.at(use));
  }
  return out;
}

/// Every device and the host with what is needed there beside what is counted.
std::vector<std::pair<const DeviceForecast*, int64_t>> everything(const MemoryForecast& forecast) {
  const int64_t on_host = forecast.waiting_bytes + forecast.process_bytes;
  std::vector<std::pair<const DeviceForecast*, int64_t>> out;
  for (const auto& device : forecast.devices) {
    const bool host = device.name == kHostAsDevice;
    out.emplace_back(&device, host ? on_host : forecast.context_bytes);
  }
  if (!forecast.host.name.empty()) out.emplace_back(&forecast.host, on_host);
  return out;
}

bool has_room(const DeviceForecast& device, int64_t beside) {
  return device.capacity == 0 || device.peak() + beside <= device.capacity;
}

std::string verdict(const DeviceForecast& device, int64_t beside) {
  if (device.capacity == 0) return "";
  const int64_t free = device.capacity - device.peak() - beside;
  if (free < 0) return "does not fit: lacks " + format_bytes(-free);
  return fmt::format("fits, {:.0f}% free", 100.0 * static_cast<double>(free) / static_cast<double>(device.capacity));
}

std::string table_of_peaks(const MemoryForecast& forecast) {
  const auto all = everything(forecast);
  std::vector<Row> rows{{"at its peak", "bytes"}};
  std::vector<size_t> uses;
  for (size_t use = 0; use < kMemoryUses; ++use) {
    const auto used = [&](const auto& entry) { return entry.first->figures.peak().by_use.at(use) != 0; };
    if (!std::ranges::any_of(all, used)) continue;
    uses.push_back(use);
    rows.front().emplace_back(memory_use_name(static_cast<MemoryUse>(use)));
  }
  rows.front().emplace_back("when");
  for (const auto& [device, beside] : all) {
    const MemoryPeak& peak = device->figures.peak();
    Row row{device->name, cell(peak.bytes)};
    for (const size_t use : uses) row.push_back(cell(peak.by_use.at(use)));
    std::string when(memory_phase_name(device->figures.peak_phase()));
    if (!peak.at.empty()) when += ", " + peak.at;
    row.push_back(peak.bytes == 0 ? "-" : when);
    rows.push_back(std::move(row));
  }
  return aligned(rows);
}

std::string table_of_phases(const MemoryForecast& forecast) {
  const auto all = everything(forecast);
  std::vector<Row> rows{{"by phase"}};
  std::vector<size_t> phases;
  for (size_t phase = 0; phase < kMemoryPhases; ++phase) {
    const auto was = [&](const auto& entry) { return entry.first->figures.phases.at(phase).bytes != 0; };
    if (!std::ranges::any_of(all, was)) continue;
    phases.push_back(phase);
    rows.front().emplace_back(memory_phase_name(static_cast<MemoryPhase>(phase)));
  }
  const bool known = std::ranges::any_of(all, [](const auto& entry) { return entry.first->capacity > 0; });
  if (known) rows.front().emplace_back("has");
  rows.front().emplace_back("");
  for (const auto& [device, beside] : all) {
    Row row{device->name};
    for (const size_t phase : phases) row.push_back(cell(device->figures.phases.at(phase).bytes));
    if (known) row.push_back(cell(device->capacity));
    row.push_back(verdict(*device, beside));
    rows.push_back(std::move(row));
  }
  return aligned(rows);
}

}  // namespace

DeviceAccount account_of(std::string name, int64_t capacity, const MemoryFigures& figures) {
  DeviceAccount out{.name = std::move(name),
                    .capacity = capacity,
                    .alive = figures.alive,
                    .alive_by_use = named(figures.by_use),
                    .held = figures.most_held,
                    .phases = {}};
  for (size_t phase = 0; phase < kMemoryPhases; ++phase) {
    const MemoryPeak& peak = figures.phases.at(phase);
    if (peak.bytes == 0) continue;
    out.phases.push_back(
        {std::string(memory_phase_name(static_cast<MemoryPhase>(phase))), peak.bytes, named(peak.by_use), peak.at});
  }
  return out;
}

int64_t MemoryForecast::peak() const {
  int64_t most = 0;
  for (const auto& device : devices) most = std::max(most, device.peak());
  return most;
}

int64_t MemoryForecast::needed() const {
  int64_t most = 0;
  for (const auto& [device, beside] : everything(*this)) {
    if (device != &host) most = std::max(most, device->peak() + beside);
  }
  return most;
}

double MemoryForecast::imbalance() const {
  if (devices.empty() || peak() == 0) return 1;
  int64_t least = peak();
  for (const auto& device : devices) least = std::min(least, device.peak());
  return least == 0 ? std::numeric_limits<double>::infinity()
                    : static_cast<double>(peak()) / static_cast<double>(least);
}

bool MemoryForecast::fits() const {
  return std::ranges::all_of(everything(*this), [](const auto& entry) { return has_room(*entry.first, entry.second); });
}

MemoryAccount MemoryForecast::account() const {
  MemoryAccount out;
  for (const auto& device : devices) out.devices.push_back(account_of(device.name, device.capacity, device.figures));
  if (!host.name.empty()) out.host = account_of(host.name, host.capacity, host.figures);
  out.context_bytes = context_bytes;
  out.waiting_bytes = waiting_bytes;
  out.process_bytes = process_bytes;
  out.batch = batch;
  return out;
}

Json MemoryForecast::as_json() const { return lockstep::as_json(account()); }

std::string MemoryForecast::print() const {
  if (devices.empty()) return "";
  std::string out = fmt::format("memory of a rank, for {}\n", batch);
  out += table_of_peaks(*this) + "\n" + table_of_phases(*this);
  if (context_bytes > 0)
    out += fmt::format("  beside it on each device: {} of its runtime\n", format_bytes(context_bytes));
  if (waiting_bytes >= kWorthALine)
    out += fmt::format("  beside it in the host's memory: {} of rows that are ready and wait\n",
                       format_bytes(waiting_bytes));
  if (process_bytes > 0)
    out +=
        fmt::format("  beside it in the process: {} that no tensor holds (what ranks share, kept products, stacks)\n",
                    format_bytes(process_bytes));
  if (devices.size() > 1) out += fmt::format("  most over least of the devices: {:.3f}\n", imbalance());
  return out;
}

}  // namespace lockstep
