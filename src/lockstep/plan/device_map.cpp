#include "lockstep/plan/device_map.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/plan/device_names.h"

namespace lockstep {
namespace {

constexpr size_t kNamesInAMessage = 6;

std::string line_of(const DeviceEntry& entry) {
  return fmt::format("\"{}\": {}", entry.name, entry.device == kCpuDevice ? "\"cpu\"" : std::to_string(entry.device));
}

std::string some_of(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesInAMessage);
  std::string out = join(std::span(names).first(shown), ", ");
  return shown == names.size() ? out : fmt::format("{} and {} more", out, names.size() - shown);
}

/// The lines of a map read in one spelling of the model's names.
class Reading {
 public:
  Reading(const Model& model, const Dialect* dialect, const std::vector<DeviceEntry>& entries, std::string where)
      : names_(model, dialect), entries_(entries), where_(std::move(where)) {
    for (const auto& entry : entries) {
      lines_.emplace(entry.name, &entry);
      if (!names_.knows(entry.name)) unknown_.push_back(entry.name);
    }
    for (const auto& block : names_.blocks()) {
      if (block.has_params() && deciding_lines(block).empty()) uncovered_.push_back(block.name);
    }
  }

  std::pair<size_t, size_t> faults() const { return {unknown_.size(), uncovered_.size()}; }

  DeviceMap resolve() const {
    if (!unknown_.empty()) throw unknown_names();
    DeviceMap map;
    std::vector<std::optional<int>> placed;
    for (const auto& block : names_.blocks()) placed.push_back(agreed_device(block));
    if (!uncovered_.empty()) throw uncovered_blocks();
    for (size_t i = 0; i < placed.size(); ++i) {
      map.devices.push_back(placed[i] ? *placed[i] : device_beside(placed, i));
      add_notices(names_.blocks()[i], map.devices.back(), map.notices);
    }
    return map;
  }

 private:
  using Line = const DeviceEntry*;

  Line nearest_line(const std::string& name) const {
    for (std::string at = name;; at = parent_name(at)) {
      const auto found = lines_.find(at);
      if (found != lines_.end()) return found->second;
      if (at.empty()) return nullptr;
    }
  }

  /// Lines that name the block or something inside it.
  std::vector<Line> lines_within(const BlockNames& block) const {
    std::vector<Line> out;
    for (const auto& entry : entries_) {
      if (is_within(entry.name, block.name)) out.push_back(&entry);
    }
    return out;
  }

  /// What says where a block with parameters stands; none: nothing does.
  std::vector<Line> deciding_lines(const BlockNames& block) const {
    std::vector<Line> lines = lines_within(block);
    if (!lines.empty()) return lines;
    if (const Line line = nearest_line(block.name)) return {line};
    for (const auto& key : block.keys.empty() ? block.tied : block.keys) {
      const Line line = nearest_line(key);
      if (line == nullptr) return {};
      lines.push_back(line);
    }
    return lines;
  }

  /// nullopt: the block has no parameters, or no line.
  std::optional<int> agreed_device(const BlockNames& block) const {
    if (!block.has_params()) return std::nullopt;
    const std::vector<Line> lines = deciding_lines(block);
    for (const Line line : lines) {
      if (line->device == lines[0]->device) continue;
      throw usage_error(fmt::format("{}: {} and {} disagree: block {} is placed whole, on one device", where_,
                                    line_of(*lines[0]), line_of(*line), block.name),
                        fmt::format("give one line for \"{}\"", block.name));
    }
    return lines.empty() ? std::nullopt : std::optional(lines[0]->device);
  }

  static int device_beside(const std::vector<std::optional<int>>& placed, size_t block) {
    const auto here = placed.begin() + static_cast<std::ptrdiff_t>(block);
    const auto has_one = [](const auto& device) { return device.has_value(); };
    const auto next = std::find_if(here, placed.end(), has_one);
    if (next != placed.end()) return **next;
    const auto previous = std::find_if(std::reverse_iterator(here), placed.rend(), has_one);
    check(previous != placed.rend(), "a device map of a model without parameters");
    return **previous;
  }

  void add_notices(const BlockNames& block, int device, std::vector<std::string>& notices) const {
    const auto notice = [&](Line line, const std::string& reason) {
      const std::string text = fmt::format("{}: {} is not followed: {}", where_, line_of(*line), reason);
      if (line->device != device && std::ranges::find(notices, text) == notices.end()) notices.push_back(text);
    };
    if (!block.has_params()) {
      for (const Line line : lines_within(block)) {
        notice(line, fmt::format("{} has no parameters and stands with the block after it, on {}", block.name,
                                 device_name(device)));
      }
    }
    for (const auto& key : block.keys) {
      const Line line = nearest_line(key);
      if (line == nullptr || !names_.belongs_to(line->name, block)) continue;
      notice(line, fmt::format("it is part of block {}, which stands on {}", block.name, device_name(device)));
    }
  }

  UserError unknown_names() const {
    std::vector<std::string> described, nearest;
    constexpr size_t kMostNames = 64;  // of which others are looked for: each is compared with all of the model's
    constexpr size_t kLongest = 1024;
    for (const auto& name : unknown_) {
      described.push_back(fmt::format("\"{}\"", cut_text(name)));
      if (described.size() > kMostNames || name.size() > kLongest) continue;
      const std::string near = nearest_name(name, names_.known());
      if (!near.empty()) nearest.push_back(fmt::format("\"{}\"", near));
    }
    return usage_error(fmt::format("{}: this {} model has no {}", where_, names_.family(), some_of(described)),
                       nearest.empty() ? "see `lockstep plan --model DIR` for the names"
                                       : "the nearest there is: " + some_of(nearest));
  }

  UserError uncovered_blocks() const {
    std::vector<std::string> missing;
    for (const auto& name : uncovered_) {
      const std::string line = fmt::format("\"{}\": DEVICE", widest_uncovered(name));
      if (missing.empty() || missing.back() != line) missing.push_back(line);
    }
    return usage_error(fmt::format("{}: no device for {}", where_, some_of(uncovered_)), "add " + some_of(missing));
  }

  /// The highest ancestor whose blocks are all without a device.
  std::string widest_uncovered(const std::string& name) const {
    std::string widest = name;
    while (!widest.empty()) {
      const std::string wider = parent_name(widest);
      const bool all = std::ranges::all_of(names_.blocks(), [&](const auto& block) {
        return !block.has_params() || !is_within(block.name, wider) ||
               std::ranges::find(uncovered_, block.name) != uncovered_.end();
      });
      if (!all) break;
      widest = wider;
    }
    return widest;
  }

  DeviceNames names_;
  const std::vector<DeviceEntry>& entries_;
  std::string where_;
  std::map<std::string, Line> lines_;
  std::vector<std::string> unknown_, uncovered_;
};

}  // namespace

DeviceMap resolve_device_map(const Model& model, const std::vector<DeviceEntry>& entries, const std::string& where) {
  std::vector<Reading> readings{Reading(model, nullptr, entries, where)};
  for (const auto& dialect : model.dialects) readings.emplace_back(model, &dialect, entries, where);
  return std::ranges::min_element(readings, {}, &Reading::faults)->resolve();  // the first of the best
}

}  // namespace lockstep
