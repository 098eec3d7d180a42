#include "lockstep/model/key_map.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/config_guess.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// Every checkpoint tensor that a block needs, once.
std::vector<ParamSource> needed(const Model& model) {
  std::vector<ParamSource> out;
  for (const auto& block : model.blocks) {
    for (const auto& param : block->params()) {
      if (!param.tied) out.insert(out.end(), param.sources.begin(), param.sources.end());
    }
  }
  return out;
}

size_t count_found(const Dialect& dialect, const std::vector<ParamSource>& sources, const Weights& weights) {
  return static_cast<size_t>(std::count_if(sources.begin(), sources.end(), [&](const ParamSource& source) {
    return weights.find(stored_part(dialect, source.key).name) != nullptr;
  }));
}

UserError missing(const std::vector<std::string>& absent, size_t needed_count, const Weights& weights,
                  const std::string& mixed) {
  std::vector<std::string> present;
  bool quantised = false;
  for (const auto& spec : weights.specs()) {
    present.push_back(spec.name);
    quantised = quantised || spec.name.ends_with(".qweight") || spec.name.ends_with(".weight_scale") ||
                spec.name.ends_with(".absmax") || spec.name.ends_with(".weight_scale_inv");
  }
  const std::string nearest = nearest_name(absent.front(), present);
  std::string hint =
      nearest.empty() ? "is this the folder that belongs to the config?" : "the nearest name is " + nearest;
  if (!mixed.empty()) hint = mixed;
  if (absent.size() == 1 && absent.front().ends_with("lm_head.weight")) {
    hint =
        "the files hold a model without its head, which answers and training need; \"tie_word_embeddings\": true in "
        "config.json "
        "is enough for `lockstep embed`, which does not use it";
  }
  if (quantised) hint = "the checkpoint is quantised: dequantise it and save it in bfloat16";
  return checkpoint_error(
      fmt::format("{}: expected in {}, found no such tensor ({} of {} needed tensors are missing, {} are "
                  "there)",
                  absent.front(), weights.dir().string(), absent.size(), needed_count, present.size()),
      hint);
}

Json config_beside(const Weights& weights) {
  try {
    return read_json(weights.dir() / "config.json");
  } catch (const Error&) {
    return nullptr;  // the message then names no key
  }
}

/// The one dimension in which two shapes differ; nullopt when they differ otherwise.
std::optional<size_t> only_difference(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return std::nullopt;
  std::optional<size_t> dim;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (dim) return std::nullopt;
    dim = i;
  }
  return dim;
}

bool is_float(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kBF16 || dtype == Dtype::kF16 || dtype == Dtype::kF64;
}

/// `expected`: what the file should have, of which `source` may be some rows.
UserError misfit(const ParamSource& source, const Shape& expected, const TensorSpec& found, const Weights& weights) {
  const Json config = config_beside(weights);
  std::vector<std::string> origins;
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool of_several = source.shape[i] != expected[i];  // rows of several of our tensors: no one key says how many
    if (of_several || (i < found.shape.size() && found.shape[i] == expected[i])) continue;
    const std::string key = config_key_of(config, source.key, i, source.shape[i]);
    if (!key.empty()) origins.push_back(fmt::format("{} = {}", key, source.shape[i]));
  }
  std::string hint = "config.json and the weights belong to different models?";
  if (const auto dim = only_difference(expected, found.shape)) {
    const int64_t should = expected[*dim], is = found.shape[*dim];
    if (is > 0 && is < should && should % is == 0) {
      hint = fmt::format("the checkpoint looks tensor-parallel-split ({}): merge its parts first", should / is);
    } else if (*dim == 0 && source.key.find("embed_tokens") != std::string::npos) {
      hint = fmt::format("set vocab_size to {} if the vocabulary was resized", is);
    }
  }
  return checkpoint_error(fmt::format("{}: expected {}{}, found {} in {}", found.name, format_shape(expected),
                                      origins.empty() ? "" : fmt::format(" ({})", join(origins, ", ")),
                                      found.describe(), weights.file_of(found.name)),
                          hint);
}

UserError unread(const std::vector<std::string>& extra, const std::vector<std::string>& read, const Weights& weights) {
  const std::string nearest = nearest_name(extra.front(), read);
  return checkpoint_error(
      fmt::format("{}: found in {}, expected no such tensor: no block reads it ({} of {} stored tensors{})",
                  extra.front(), weights.file_of(extra.front()), extra.size(), weights.specs().size(),
                  nearest.empty() ? "" : "; the nearest that is read is " + nearest),
      "a part of the model would be left out in silence: does config.json say fewer layers than there are, or belong "
      "to another model?");
}

void check_promises(const Model& model, const Weights& weights) {
  for (const Promised& promise : model.promised) {
    const auto holds = [&](const TensorSpec& spec) { return spec.name.starts_with(promise.beginning); };
    if (std::ranges::any_of(weights.specs(), holds)) continue;
    throw checkpoint_error(fmt::format("{}: expected tensors {}* in {}, found none of {}", promise.by,
                                       promise.beginning, weights.dir().string(), weights.specs().size()),
                           promise.cure);
  }
}

/// The model's own names count as a dialect.
std::vector<Dialect> dialects_of(const Model& model) {
  std::vector<Dialect> all{{"released", {}}};
  all.insert(all.end(), model.dialects.begin(), model.dialects.end());
  return all;
}

/// A sentence when a tensor that is not there under one dialect's name is there under another's.
std::string mixture(const Model& model, const Dialect& taken, const std::vector<ParamSource>& absent,
                    const Weights& weights) {
  for (const auto& source : absent) {
    for (const auto& other : dialects_of(model)) {
      const std::string name = stored_part(other, source.key).name;
      if (weights.find(name) == nullptr) continue;
      return fmt::format("{} is there: the folder mixes the names of \"{}\" and \"{}\"; take all files from one source",
                         name, taken.name, other.name);
    }
  }
  return "";
}

void check_fits(const ParamSource& source, const StoredPart& part, const Weights& weights) {
  const TensorSpec& found = *weights.find(part.name);
  const Shape expected = part.whole_of(source.shape);
  if (found.shape != expected) throw misfit(source, expected, found, weights);
  if (is_float(found.dtype)) return;
  throw checkpoint_error(fmt::format("{}: expected f32, bf16, f16 or f64, found {} in {}", found.name, found.describe(),
                                     weights.file_of(found.name)),
                         "the checkpoint looks quantised: dequantise it and save it in bfloat16");
}

}  // namespace

KeyMap KeyMap::match(const Model& model, const Weights& weights) {
  const std::vector<ParamSource> sources = needed(model);
  std::vector<ParamSource> telling = sources;  // what is only carried through tells the dialect as well
  telling.insert(telling.end(), model.unused.begin(), model.unused.end());
  KeyMap map;
  size_t best = 0;
  for (const auto& dialect : dialects_of(model)) {
    const size_t found = count_found(dialect, telling, weights);
    if (found <= best) continue;
    best = found;
    map.dialect_ = dialect;
  }
  std::vector<ParamSource> absent;
  std::vector<std::string> names;
  for (const auto& source : sources) {
    const std::string name = map.on_disk(source.key).name;
    if (weights.find(name) != nullptr) continue;
    absent.push_back(source);
    if (names.empty() || names.back() != name) names.push_back(name);  // q, k and v of one tensor: named once
  }
  if (!absent.empty()) check_promises(model, weights);
  if (!absent.empty()) throw missing(names, sources.size(), weights, mixture(model, map.dialect_, absent, weights));
  for (const auto& source : sources) check_fits(source, map.on_disk(source.key), weights);
  if (const Unmatched rest = unmatched(model, weights, map); !rest.extra.empty()) {
    std::vector<std::string> read;
    for (const auto& source : sources) read.push_back(map.on_disk(source.key).name);
    throw unread(rest.extra, read, weights);
  }
  check_promises(model, weights);
  return map;
}

void KeyMap::read_flat(const Weights& weights, const ParamSource& source, int64_t begin, const Tensor& out) const {
  const StoredPart part = on_disk(source.key);
  for_each_piece(part.rows, source.shape, begin, begin + out.numel(), [&](int64_t there, int64_t here, int64_t count) {
    weights.read_flat(part.name, there, out.narrow(0, here - begin, count));
  });
}

Tensor KeyMap::read(const Weights& weights, const ParamSource& source) const {
  const std::string name = on_disk(source.key).name;
  const TensorSpec* found = weights.find(name);
  check(found != nullptr, "tensor " + name + " is there: match() has looked");
  const Tensor flat = empty({numel_of(source.shape)}, found->dtype);
  read_flat(weights, source, 0, flat);
  return flat.view(source.shape);
}

void write_part(SafetensorsWriter& writer, const StoredPart& part, const Tensor& value) {
  if (part.rows.whole()) return writer.write(part.name, value);
  const Tensor flat = value.reshape({value.numel()});
  for_each_piece(part.rows, shape_of(value), 0, value.numel(), [&](int64_t there, int64_t here, int64_t count) {
    writer.write_flat(part.name, there, flat.narrow(0, here, count));
  });
}

Unmatched unmatched(const Model& model, const Weights& weights, const KeyMap& keys) {
  std::unordered_set<std::string> known;
  bool tied = false;
  for (const auto& source : needed(model)) known.insert(keys.on_disk(source.key).name);
  for (const auto& source : model.unused) known.insert(keys.on_disk(source.key).name);
  for (const auto& block : model.blocks) {
    for (const auto& param : block->params()) tied = tied || param.tied;
  }
  Unmatched out;
  for (const auto& spec : weights.specs()) {
    if (known.contains(spec.name)) continue;
    const auto begins = [&](const std::string& beginning) { return spec.name.starts_with(beginning); };
    if (std::ranges::any_of(model.carried, begins)) {
      out.carried.push_back(spec.name);
      continue;
    }
    if (spec.name.ends_with("inv_freq") || spec.name.ends_with("position_ids")) {
      out.derived.push_back(spec.name);
    } else if (tied && spec.name.ends_with("lm_head.weight")) {
      out.notices.push_back(fmt::format("{} {} is stored but config.json ties the head to the embedding: it is ignored",
                                        spec.name, spec.describe()));
    } else {
      out.extra.push_back(spec.name);
    }
  }
  return out;
}

}  // namespace lockstep
