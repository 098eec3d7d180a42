#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/config_guess.h"
#include "lockstep/model/weights.h"  // KeyMap

namespace lockstep {
namespace {

std::string renamed(const Dialect& dialect, const std::string& key) {
  for (const auto& rule : dialect.rules) {
    if (key.starts_with(rule.canonical)) return rule.other + key.substr(rule.canonical.size());
  }
  return key;
}

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
    return weights.find(renamed(dialect, source.key)) != nullptr;
  }));
}

UserError missing(const std::vector<std::string>& absent, size_t needed_count, const Weights& weights) {
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

UserError misfit(const ParamSource& source, const TensorSpec& found, const Weights& weights) {
  const Json config = config_beside(weights);
  std::vector<std::string> origins;
  for (size_t i = 0; i < source.shape.size(); ++i) {
    if (i < found.shape.size() && found.shape[i] == source.shape[i]) continue;
    const std::string key = config_key_of(config, source.key, i, source.shape[i]);
    if (!key.empty()) origins.push_back(fmt::format("{} = {}", key, source.shape[i]));
  }
  std::string hint = "config.json and the weights belong to different models?";
  if (const auto dim = only_difference(source.shape, found.shape)) {
    const int64_t expected = source.shape[*dim], is = found.shape[*dim];
    if (is > 0 && is < expected && expected % is == 0) {
      hint = fmt::format("the checkpoint looks tensor-parallel-split ({}): merge its parts first", expected / is);
    } else if (*dim == 0 && source.key.find("embed_tokens") != std::string::npos) {
      hint = fmt::format("set vocab_size to {} if the vocabulary was resized", is);
    }
  }
  return checkpoint_error(fmt::format("{}: expected {}{}, found {} in {}", found.name, format_shape(source.shape),
                                      origins.empty() ? "" : fmt::format(" ({})", join(origins, ", ")),
                                      found.describe(), weights.file_of(found.name)),
                          hint);
}

UserError unread(const std::vector<std::string>& extra, const Weights& weights) {
  return checkpoint_error(
      fmt::format("{}: found in {}, expected no such tensor: no block reads it ({} of {} stored tensors)",
                  extra.front(), weights.file_of(extra.front()), extra.size(), weights.specs().size()),
      "a part of the model would be left out in silence: does config.json say fewer layers than there are, or belong "
      "to another model?");
}

bool is_float(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kBF16 || dtype == Dtype::kF16 || dtype == Dtype::kF64;
}

}  // namespace

KeyMap KeyMap::canonical() { return {}; }

std::string KeyMap::on_disk(const std::string& canonical_key) const { return renamed(dialect_, canonical_key); }

KeyMap KeyMap::match(const Model& model, const Weights& weights) {
  const std::vector<ParamSource> sources = needed(model);
  std::vector<ParamSource> telling = sources;  // what is only carried through tells the dialect as well
  telling.insert(telling.end(), model.unused.begin(), model.unused.end());
  KeyMap map;
  size_t best = count_found(map.dialect_, telling, weights);
  for (const auto& dialect : model.dialects) {
    const size_t found = count_found(dialect, telling, weights);
    if (found <= best) continue;
    best = found;
    map.dialect_ = dialect;
  }
  std::vector<std::string> absent;
  for (const auto& source : sources) {
    if (weights.find(map.on_disk(source.key)) == nullptr) absent.push_back(map.on_disk(source.key));
  }
  if (!absent.empty()) throw missing(absent, sources.size(), weights);
  for (const auto& source : sources) {
    const TensorSpec& found = *weights.find(map.on_disk(source.key));
    if (found.shape != source.shape) throw misfit(source, found, weights);
    if (is_float(found.dtype)) continue;
    throw checkpoint_error(fmt::format("{}: expected f32, bf16, f16 or f64, found {} in {}", found.name,
                                       found.describe(), weights.file_of(found.name)),
                           "the checkpoint looks quantised: dequantise it and save it in bfloat16");
  }
  if (const Unmatched rest = unmatched(model, weights, map); !rest.extra.empty()) throw unread(rest.extra, weights);
  return map;
}

Unmatched unmatched(const Model& model, const Weights& weights, const KeyMap& keys) {
  std::unordered_set<std::string> known;
  bool tied = false;
  for (const auto& source : needed(model)) known.insert(keys.on_disk(source.key));
  for (const auto& source : model.unused) known.insert(keys.on_disk(source.key));
  for (const auto& block : model.blocks) {
    for (const auto& param : block->params()) tied = tied || param.tied;
  }
  Unmatched out;
  for (const auto& spec : weights.specs()) {
    if (known.contains(spec.name)) continue;
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
