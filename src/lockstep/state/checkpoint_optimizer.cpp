#include "lockstep/state/checkpoint_optimizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSameComponents =
    "resume with the same --train, --freeze and --no_build flags, or take the folder as --model to begin afresh";

constexpr const char* kNotWhole =
    "the checkpoint's optimizer is not whole: take it as --model instead, or an earlier one";

constexpr const char* kFormat = "lockstep optimizer 1";

struct Slot {
  const char* name;
  Tensor OptimizerState::*tensor;
};
constexpr std::array<Slot, 3> kSlots = {{{"master", &OptimizerState::master},
                                         {"exp_avg", &OptimizerState::exp_avg},
                                         {"exp_avg_sq", &OptimizerState::exp_avg_sq}}};

std::string key_of(const std::string& unit, const Slot& slot) { return unit + "." + slot.name; }

/// A master of float32 weights is the weight itself, which stands in the model's files.
bool is_stored(const Unit& unit, const Slot& slot) {
  return slot.tensor != &OptimizerState::master || unit.dtype != Dtype::kF32;
}

/// The part of a unit that one file holds.
struct Slice {
  Range range;
  size_t file;
};
struct StoredUnit {
  int64_t numel = 0, updates = 0;
  std::vector<Slice> slices;
};
struct Shards {
  std::vector<Weights> files;
  std::map<std::string, StoredUnit> units;
};

/// "__metadata__" of a safetensors file that Weights has already found in order.
Json read_metadata(const fs::path& path) {
  const MappedFile file(path);
  uint64_t length = 0;
  std::memcpy(&length, file.bytes().data(), sizeof length);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()) + sizeof length, length);
  const Json header = parse_json(text, path.string());
  const Json metadata = header.value("__metadata__", Json::object());
  const Json format = metadata.is_object() ? metadata.value("format", Json()) : Json();
  if (format != Json(kFormat)) {
    throw checkpoint_error(
        fmt::format("{}: expected metadata format \"{}\", found {}", path.string(), kFormat, cut_text(format.dump())));
  }
  const Json units = metadata.value("units", Json("[]"));
  Json list = units.is_string() ? parse_json(units.get_ref<const std::string&>(), path.string() + " units") : units;
  if (!list.is_array())
    throw checkpoint_error(fmt::format("{}: units: expected a list, found {}", path.string(), cut_text(list.dump())));
  return list;
}

void add_file(const fs::path& path, Shards& shards) {
  shards.files.push_back(Weights::open(path));
  for (const Json units = read_metadata(path); const auto& unit : units) {
    if (!unit.is_object() || !unit.value("name", Json()).is_string()) {
      throw checkpoint_error(
          fmt::format("{}: expected a unit with a name, found {}", path.string(), cut_text(unit.dump())));
    }
    StoredUnit& stored = shards.units[unit.at("name").get<std::string>()];
    const auto number = [&](const char* key) {
      const Json value = unit.value(key, Json());
      if (value.is_number_integer() && value.get<int64_t>() >= 0) return value.get<int64_t>();
      throw checkpoint_error(fmt::format("{}: {} of {}: expected a whole number of at least 0, found {}", path.string(),
                                         key, unit.at("name").dump(), cut_text(value.dump())));
    };
    stored.numel = number("numel");
    stored.updates = number("updates");
    const Range range{number("begin"), number("end")};
    if (range.empty()) continue;  // of a rank that has nothing of it
    if (range.end > stored.numel) {
      throw checkpoint_error(fmt::format("{}: {}: expected a part of its {} elements, found {} to {}", path.string(),
                                         unit.at("name").dump(), stored.numel, range.begin, range.end));
    }
    stored.slices.push_back({range, shards.files.size() - 1});
  }
}

/// All files of one set: the number of files stands in each name.
Shards open_shards(const fs::path& dir) {
  int world = 0;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("optimizer-00000-of-") && name.ends_with(".safetensors"))
      std::from_chars(name.data() + 19, name.data() + std::min<size_t>(24, name.size()), world);
  }
  if (world == 0) {
    throw checkpoint_error(fmt::format("{}: expected optimizer-00000-of-NNNNN.safetensors, found none", dir.string()),
                           "a checkpoint of --save_only_model true cannot be resumed; take it as --model instead");
  }
  Shards shards;
  for (int rank = 0; rank < world; ++rank) add_file(dir / optimizer_file_name(rank, world), shards);
  return shards;
}

/// The file's own words of what it holds may be wrong.
void require_slice(const TensorSpec* found, const Range& range, const std::string& key) {
  if (found != nullptr && found->dtype == Dtype::kF32 && numel_of(found->shape) == range.size()) return;
  throw checkpoint_error(fmt::format("{}: expected {} numbers F32 for elements {} to {}, found {}", key, range.size(),
                                     range.begin, range.end, found == nullptr ? "none" : found->describe()),
                         kNotWhole);
}

/// out := elements [begin, begin + out.numel()) of the unit; slices cover all of it up to numel.
void read_range(const Shards& shards, const StoredUnit& stored, const std::string& key, int64_t begin,
                const Tensor& out) {
  const Range wanted = intersect({begin, begin + out.numel()}, {0, stored.numel});
  int64_t found = 0;
  for (const auto& slice : stored.slices) {
    const Range both = intersect(slice.range, wanted);
    if (both.empty()) continue;
    require_slice(shards.files[slice.file].find(key), slice.range, key);
    shards.files[slice.file].read_flat(key, both.begin - slice.range.begin,
                                       out.narrow(0, both.begin - begin, both.size()));
    found += both.size();
  }
  if (found == wanted.size()) return;
  throw checkpoint_error(fmt::format("{}: {} of {} elements are in the optimizer files", key, found, wanted.size()),
                         kNotWhole);
}

/// What is not in the files: masters are the weights then, and moments are zeros before the first update.
void require_none(const StoredUnit& stored, const Slot& slot, const std::string& key) {
  if (slot.tensor == &OptimizerState::master || stored.updates == 0 || stored.numel == 0) return;
  throw checkpoint_error(
      fmt::format("{}: expected it in the optimizer files behind {} updates, found none", key, stored.updates),
      kNotWhole);
}

/// `values`: elements of the unit from `begin` on. A mean of squares has no sign.
void require_numbers(const Tensor& values, const Slot& slot, const std::string& key, int64_t begin) {
  if (values.numel() == 0) return;
  const auto [low, high] = values.aminmax();  // not a number, where one is none
  const double least = low.item<double>(), most = high.item<double>();
  const bool squares = slot.tensor == &OptimizerState::exp_avg_sq;
  if (std::isfinite(least) && std::isfinite(most) && (!squares || least >= 0)) return;
  throw checkpoint_error(fmt::format("{}: expected finite numbers{}, found {} to {} among elements {} to {}", key,
                                     squares ? " from 0" : "", least, most, begin, begin + values.numel()),
                         kNotWhole);
}

void read_unit(const Shards& shards, const StoredUnit& stored, const Unit& planned, UnitState& state) {
  if (stored.numel != planned.numel) {
    throw checkpoint_error(
        fmt::format("optimizer state of {}: expected {} elements, found {}", planned.name, planned.numel, stored.numel),
        "was the checkpoint saved with another model?");
  }
  state.updates = stored.updates;
  for (const auto& slot : kSlots) {
    const std::string key = key_of(planned.name, slot);
    const bool is_there = std::ranges::any_of(
        stored.slices, [&](const Slice& slice) { return shards.files[slice.file].find(key) != nullptr; });
    if (!is_there) {
      require_none(stored, slot, key);
      continue;
    }
    for (const auto& slice : state.optimizer) {
      const Tensor host = zeros({slice.range.size()}, Dtype::kF32);
      read_range(shards, stored, key, slice.range.begin, host);
      require_numbers(host, slot, key, slice.range.begin);
      (slice.*slot.tensor).copy_(host);
    }
  }
}

}  // namespace

std::string optimizer_file_name(int rank, int world) {
  return fmt::format("optimizer-{:05}-of-{:05}.safetensors", rank, world);
}

void write_optimizer_shard(const ParamStore& store, int world, const fs::path& dir) {
  const Plan& plan = store.plan();
  std::vector<TensorSpec> specs;
  Json units = Json::array();
  const auto range_of = [&](int i) {
    return intersect(store.unit(i).owned, {0, plan.units[static_cast<size_t>(i)].numel});
  };
  for (int i = 0; i < store.num_units(); ++i) {
    const Unit& planned = plan.units[static_cast<size_t>(i)];
    if (!planned.trainable) continue;
    const Range range = range_of(i);
    units.push_back({{"name", planned.name},
                     {"begin", range.begin},
                     {"end", range.end},
                     {"numel", planned.numel},
                     {"updates", store.unit(i).updates}});
    for (const auto& slot : kSlots) {
      if (!range.empty() && is_stored(planned, slot))
        specs.push_back({key_of(planned.name, slot), Dtype::kF32, {range.size()}});
    }
  }
  const std::string name = optimizer_file_name(store.rank(), world);
  SafetensorsWriter out(dir, std::move(specs),
                        {.max_shard_bytes = std::numeric_limits<int64_t>::max(),
                         .stem = name.substr(0, name.size() - std::string(".safetensors").size()),
                         .metadata = {{"format", kFormat}, {"units", units.dump()}}});
  for (int i = 0; i < store.num_units(); ++i) {
    const Unit& planned = plan.units[static_cast<size_t>(i)];
    const Range range = range_of(i);
    if (!planned.trainable || range.empty()) continue;
    const UnitState& state = store.unit(i);
    for (const auto& slot : kSlots) {
      if (!is_stored(planned, slot)) continue;
      for (const auto& slice : state.optimizer) {
        const Range both = intersect(slice.range, range);
        if (both.empty()) continue;
        out.write_flat(key_of(planned.name, slot), both.begin - range.begin,
                       (slice.*slot.tensor).narrow(0, both.begin - slice.range.begin, both.size()).cpu());
      }
    }
  }
  out.finish();
}

void read_optimizer_shards(ParamStore& store, const fs::path& dir) {
  const at::NoGradGuard no_grad;
  const Shards shards = open_shards(dir);
  const Plan& plan = store.plan();
  size_t matched = 0;
  for (int i = 0; i < store.num_units(); ++i) {
    const Unit& planned = plan.units[static_cast<size_t>(i)];
    if (!planned.trainable) continue;
    const auto found = shards.units.find(planned.name);
    if (found == shards.units.end()) {
      throw checkpoint_error(fmt::format("{}: expected optimizer state of {}, which is trained now, found none",
                                         dir.string(), planned.name),
                             kSameComponents);
    }
    read_unit(shards, found->second, planned, store.unit(i));
    ++matched;
  }
  if (matched == shards.units.size()) return;
  throw checkpoint_error(
      fmt::format("{}: {} blocks were trained there, {} of them are now", dir.string(), shards.units.size(), matched),
      kSameComponents);
}

}  // namespace lockstep
