// Random trees of names and random maps against a resolver that follows the rules of device_map.h word by word.
#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/plan/device_map.h"
#include "lockstep/plan/test_blocks.h"

namespace lockstep {
namespace {

using Path = std::vector<std::string>;

Path path_of(const std::string& name) { return name.empty() ? Path() : split(name, '.'); }

bool begins_with(const Path& path, const Path& prefix) {
  return path.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), path.begin());
}

/// What the rules give: a device of each block, or the kind of the refusal.
struct Outcome {
  std::vector<int> devices;
  std::string refusal;
  bool operator==(const Outcome&) const = default;
};

class Oracle {
 public:
  Oracle(const Model& model, const std::vector<DeviceEntry>& entries) : model_(model), entries_(entries) {}

  Outcome run() const {
    for (const auto& entry : entries_) {
      if (!known(path_of(entry.name))) return {{}, "has no"};
    }
    std::vector<std::optional<int>> placed;
    bool uncovered = false;
    for (const auto& block : model_.blocks) {
      std::vector<int> wanted;
      if (!block->params().empty()) wanted = devices_of(*block);
      if (std::ranges::any_of(wanted, [&](int device) { return device != wanted[0]; })) return {{}, "disagree"};
      uncovered = uncovered || (!block->params().empty() && wanted.empty());
      placed.push_back(wanted.empty() ? std::nullopt : std::optional(wanted[0]));
    }
    if (uncovered) return {{}, "no device for"};
    Outcome outcome;
    for (size_t i = 0; i < placed.size(); ++i) {
      size_t beside = i;
      while (beside < placed.size() && !placed[beside]) ++beside;
      if (beside == placed.size()) {
        for (beside = i; !placed[beside];) --beside;
      }
      outcome.devices.push_back(*placed[beside]);
    }
    return outcome;
  }

 private:
  bool known(const Path& name) const {
    return std::ranges::any_of(model_.blocks, [&](const auto& block) {
      return begins_with(path_of(block->name()), name) ||
             std::ranges::any_of(block->params(), [&](const ParamSpec& param) {
               return begins_with(path_of(param.sources[0].key), name);
             });
    });
  }

  std::optional<int> longest_prefix(const Path& name) const {
    std::optional<int> device;
    size_t longest = 0;
    for (const auto& entry : entries_) {
      const Path prefix = path_of(entry.name);
      if (!begins_with(name, prefix) || (device && prefix.size() < longest)) continue;
      device = entry.device;
      longest = prefix.size();
    }
    return device;
  }

  std::vector<int> devices_of(const Block& block) const {
    std::vector<int> within;
    const Path name = path_of(block.name());
    for (const auto& entry : entries_) {
      if (begins_with(path_of(entry.name), name)) within.push_back(entry.device);
    }
    if (!within.empty()) return within;
    if (const auto device = longest_prefix(name)) return {*device};
    for (const auto& param : block.params()) {
      const auto device = longest_prefix(path_of(param.sources[0].key));
      if (!device) return {};
      within.push_back(*device);
    }
    return within;
  }

  const Model& model_;
  const std::vector<DeviceEntry>& entries_;
};

/// Blocks are leaves of a random tree: none stands inside another.
void grow(Model& model, std::mt19937_64& random, const std::string& at, int depth) {
  const bool leaf = !at.empty() && (depth == 0 || random() % 3 == 0);
  if (!leaf) {
    const auto children = 1 + random() % 3;
    for (size_t child = 0; child < children; ++child) {
      grow(model, random, at + (at.empty() ? "" : ".") + std::string(1, static_cast<char>('a' + child)), depth - 1);
    }
    return;
  }
  auto& block = add_block(model, at);
  const auto params = random() % 4;
  for (size_t p = 0; p < params; ++p) block.with(fmt::format("{}.{}.weight", p % 2, p), {2, 2});
  if (random() % 5 == 0) block.with_key("far", fmt::format("{}x.far", at.substr(0, at.size() - 1)), {2, 2});
}

std::vector<DeviceEntry> random_map(const Model& model, std::mt19937_64& random) {
  std::vector<std::string> names{""};
  for (const auto& block : model.blocks) {
    std::vector<std::string> whole{block->name()};
    for (const auto& param : block->params()) whole.push_back(param.sources[0].key);
    for (const auto& name : whole) {
      for (size_t end = name.size(); end != std::string::npos && end > 0; end = name.rfind('.', end - 1)) {
        names.push_back(name.substr(0, end));
      }
    }
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::ranges::shuffle(names, random);
  names.resize(std::min<size_t>(names.size(), 1 + random() % 8));
  if (random() % 8 == 0) names.push_back(names[0] + "q");
  std::vector<DeviceEntry> entries;
  for (const auto& name : names) entries.push_back({name, static_cast<int>(random() % 3) - 1});
  return entries;
}

TEST(DeviceMapProperty, RandomMapsOfRandomTreesFollowTheRules) {
  const auto seed = std::random_device()();
  std::mt19937_64 random(seed);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    Model model{.family = "random"};
    grow(model, random, "", 4);
    if (std::ranges::all_of(model.blocks, [](const auto& block) { return block->params().empty(); })) continue;
    const auto entries = random_map(model, random);
    const Outcome expected = Oracle(model, entries).run();
    std::string text;
    for (const auto& entry : entries) text += fmt::format(" {}={}", entry.name, entry.device);
    SCOPED_TRACE(fmt::format("seed {} round {}:{}", seed, round, text));
    try {
      ASSERT_EQ(resolve_device_map(model, entries, "map").devices, expected.devices) << expected.refusal;
      ++accepted;
    } catch (const UserError& e) {
      ASSERT_FALSE(expected.refusal.empty()) << e.what();
      ASSERT_NE(e.message().find(expected.refusal), std::string::npos) << e.what();
    }
  }
  EXPECT_GT(accepted, 400) << "seed " << seed;
}

}  // namespace
}  // namespace lockstep
