#include "lockstep/plan/quantisation.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/quantised_tensor.h"
#include "lockstep/model/weights.h"
#include "lockstep/plan/adapters.h"

namespace lockstep {
namespace {

/// "visual" and "layers.3" of "model.visual.…" and "model.layers.3.…".
bool names(const std::string& part, const std::string& module) {
  return ("." + module + ".").find("." + part + ".") != std::string::npos;
}

bool is_tower_or_projector(Component component) {
  return component != Component::kLlm && component != Component::kTalker;
}

const ParamSpec& spec_of(const Model& model, const ModuleOfModel& module) {
  return model.blocks[module.block]->params()[module.param];
}

std::vector<ModuleOfModel> linear_modules(const Model& model, const Dialect& naming) {
  std::vector<ModuleOfModel> modules = modules_of(model, naming);
  std::erase_if(modules, [&](const ModuleOfModel& module) {
    const ParamSpec& spec = spec_of(model, module);
    return module.head || module.table || spec.tied || spec.shape.size() != 2;
  });
  return modules;
}

void check_names(const std::vector<std::string>& skip, const Model& model, const Dialect& naming) {
  const std::vector<ModuleOfModel> all = modules_of(model, naming);
  for (const auto& name : skip) {
    if (std::ranges::any_of(all, [&](const auto& module) { return names(name, module.name); })) continue;
    if (name == "lm_head" || name == "none") continue;  // which many models have not, and everybody writes
    std::vector<std::string> parts;
    for (const auto& module : all) {
      for (auto& part : split(module.name, '.')) parts.push_back(std::move(part));
    }
    const std::string near = nearest_name(name, parts);
    throw usage_error(
        fmt::format("--llm_int8_skip_modules {}: no module of this {} model is called so", name, model.family),
        near.empty() ? "whole names look like " + all.front().name : "did you mean " + near + "?");
  }
}

/// Whether the file's tensor can be kept in pieces: they are whole blocks.
bool whole_blocks(const StoredRows& rows, const ParamSource& source, const QuantFormat& format) {
  if (rows.whole() || format.kind == QuantKind::kInt8) return true;
  const int64_t width = numel_of(source.shape) / std::max<int64_t>(1, source.shape[0]);
  return rows.group * width % QuantLayout::kBlock == 0 && rows.before * width % QuantLayout::kBlock == 0 &&
         rows.own * width % QuantLayout::kBlock == 0;
}

}  // namespace

QuantStore Quantisation::store_of(const Unit& unit, int world) const {
  QuantStore store;
  for (const auto& placed : unit.params) {
    for (const auto& source : placed.spec.sources) {
      const QuantFormat format = format_of(source.key).value_or(QuantFormat{.dtype = unit.dtype});
      store.parts.push_back({format, store.bytes});
      store.bytes += QuantLayout::of(format, source.shape).bytes;
    }
  }
  const int64_t quantum = world * Plan::kAlign;
  store.padded = (store.bytes + quantum - 1) / quantum * quantum;
  store.shard = store.padded / world;
  return store;
}

std::string Quantisation::describe(const Model& model) const {
  std::map<Component, std::pair<int64_t, int64_t>> counts;
  QuantFormat format;
  for (const auto& block : model.blocks) {
    for (const auto& spec : block->params()) {
      if (spec.tied || spec.kind != ParamKind::kMatrix) continue;
      for (const auto& source : spec.sources) {
        auto& [codes, all] = counts[block->component()];
        ++all;
        if (const auto found = format_of(source.key)) {
          ++codes;
          format = *found;
        }
      }
    }
  }
  std::vector<std::string> parts;
  for (const auto& [component, count] : counts) {
    parts.push_back(fmt::format("{} {} of {} matrices", component_name(component), count.first, count.second));
  }
  return fmt::format("kept as {}{}: {}", quant_kind_name(format.kind), format.nested ? " with nested scales" : "",
                     join(parts, ", "));
}

Quantisation choose_quantisation(const Model& model, const Dialect& naming, const QuantChoice& choice) {
  if (choice.strict) check_names(choice.skip, model, naming);
  Quantisation out;
  for (const auto& module : linear_modules(model, naming)) {
    const bool by_name =
        std::ranges::any_of(choice.skip, [&](const std::string& name) { return names(name, module.name); });
    const bool by_default = choice.skip.empty() && is_tower_or_projector(model.blocks[module.block]->component());
    if (by_name || by_default) continue;
    const ParamSpec& spec = spec_of(model, module);
    for (size_t i = 0; i < module.sources; ++i) out.formats[spec.sources[module.first_source + i].key] = choice.format;
  }
  if (out.formats.empty()) {
    throw usage_error("--quant_bits: every matrix is skipped, and none is left to quantise",
                      "--llm_int8_skip_modules with fewer names, or leave --quant_bits out");
  }
  return out;
}

Quantisation quantisation_of(const Model& model, const Weights& weights, const KeyMap& keys) {
  Quantisation out;
  for (const auto& block : model.blocks) {
    for (const auto& spec : block->params()) {
      if (spec.tied) continue;
      for (const auto& source : spec.sources) {
        const StoredPart part = keys.on_disk(source.key);
        const QuantisedTensor* found = weights.quantised(part.name);
        if (found == nullptr) continue;
        QuantFormat format = found->format;
        if (!whole_blocks(part.rows, source, format)) continue;
        if (!part.rows.whole()) format.nested = false;  // its blocks of scales are cut
        out.formats[source.key] = format;
      }
    }
  }
  return out;
}

}  // namespace lockstep
