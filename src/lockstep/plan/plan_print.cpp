// What people and plan.json see of a Plan, and the hash that ranks compare.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/plan/plan.h"

namespace lockstep {
namespace {

Json options_json(const PlanOptions& options) {
  Json frozen = Json::array();
  for (const auto component : options.frozen) frozen.push_back(std::string(component_name(component)));
  return {{"world", options.world},
          {"zero", options.zero.stage},
          {"compute", torch_dtype_name(options.compute)},
          {"reduce", torch_dtype_name(options.reduced())},
          {"training", options.training},
          {"shared_weights", options.shared_weights},
          {"recompute", options.recompute},
          {"recompute_vision", options.recompute_vision},
          {"kept_blocks", options.kept_blocks},
          {"frozen", frozen},
          {"freeze_parameters", options.freeze.prefixes},
          {"freeze_parameters_regex", options.freeze.regex},
          {"freeze_parameters_ratio", options.freeze.ratio},
          {"trainable_parameters", options.freeze.trainable_prefixes},
          {"trainable_parameters_regex", options.freeze.trainable_regex},
          {"freeze_trainable_layers", options.freeze.layers},
          {"freeze_trainable_modules", options.freeze.layer_modules},
          {"freeze_extra_modules", options.freeze.extra_modules},
          {"devices", options.placement.num_devices},
          {"offload_params", options.placement.offload_params},
          {"offload_optimizer", options.placement.offload_optimizer}};
}

Json quantised_json(const QuantStore& store) {
  Json parts = Json::array();
  for (const auto& part : store.parts) {
    parts.push_back({{"kind", quant_kind_name(part.format.kind)},
                     {"nested", part.format.nested},
                     {"dtype", torch_dtype_name(part.format.dtype)},
                     {"begin", part.begin}});
  }
  return {{"bytes", store.bytes}, {"padded", store.padded}, {"parts", parts}};
}

Json units_json(const std::vector<Unit>& units) {
  Json list = Json::array();
  for (const auto& unit : units) {
    Json params = Json::array();
    for (const auto& placed : unit.params) {
      Json keys = Json::array();
      for (const auto& source : placed.spec.sources) keys.push_back(source.key);
      params.push_back({{"keys", keys}, {"shape", placed.spec.shape}, {"offset", placed.offset}});
    }
    Json slices = Json::array();
    for (const auto& slice : unit.optimizer) slices.push_back({slice.device, slice.begin, slice.end});
    Json updates = Json::array();
    for (const auto& range : unit.updates) updates.push_back({range.begin, range.end, range.decays, range.rate});
    list.push_back({{"name", unit.name},
                    {"trainable", unit.trainable},
                    {"uses", unit.uses},
                    {"numel", unit.numel},
                    {"dtype", torch_dtype_name(unit.dtype)},
                    {"updates", updates},
                    {"padded", unit.padded},
                    {"device", unit.device},
                    {"optimizer", slices},
                    {"params", params}});
    if (unit.quantised) list.back()["quantised"] = quantised_json(*unit.quantised);
  }
  return list;
}

Json adapters_json(const AdaptedBlock& adapted) {
  Json list = Json::array();
  for (const auto& one : adapted.params) {
    Json parts = Json::array();
    for (const auto& part : one.parts) parts.push_back({part.first, part.count, part.rank, part.scale});
    list.push_back({{"param", one.param}, {"adapter", one.adapter}, {"parts", parts}, {"dropout", one.dropout}});
  }
  return list;
}

Json steps_json(const std::vector<Step>& steps) {
  Json list = Json::array();
  for (const auto& step : steps) {
    list.push_back({{"block", step.block},
                    {"modality", step.runs_on.names()},
                    {"units", step.units},
                    {"device", step.device},
                    {"arrivals", step.arrivals},
                    {"grad_inputs", step.grad_inputs},
                    {"backward", step.backward},
                    {"recompute", step.recompute}});
    if (!step.adapted.params.empty()) list.back()["adapters"] = adapters_json(step.adapted);
  }
  return list;
}

/// What a line says of a block beside its name.
std::string line_of(const Plan& plan, const Block& block, const Step& step) {
  int64_t numel = 0;
  bool trains = false, shared = false;
  for (const int u : step.units) {
    const Unit& unit = plan.units[static_cast<size_t>(u)];
    trains = trains || unit.trainable;
    const bool own = unit.name == block.name() || unit.name.starts_with(block.name() + " ");
    if (own) numel += unit.used_numel();
    shared = shared || !own;
  }
  const bool adapted = !step.adapted.params.empty();
  const char* role = step.units.empty() ? "-" : adapted ? "adapted" : trains ? "trained" : "frozen";
  const char* back = !plan.options.training ? ""
                     : step.recompute       ? "recomputed"
                     : step.backward        ? "kept"
                                            : "no backward";
  const bool several = plan.options.placement.num_devices > 1;
  return fmt::format("{:<9} {:<12} {:>8} {:<8} {}{}{}", component_name(block.component()),
                     block.always_runs() ? "always" : step.runs_on.names(), numel == 0 ? "" : format_count(numel), role,
                     several ? fmt::format("device {} ", step.device) : "", back,
                     shared ? ", shares a tied weight" : "");
}

/// "layers.", 11 of "layers.11"; -1: it ends in no number.
std::pair<std::string, int64_t> numbered(const std::string& name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  const bool is = digits < name.size() && name.size() - digits < 10;
  return {name.substr(0, digits), is ? std::stoll(name.substr(digits)) : -1};
}

const char* words_of_share(const Plan& plan) {
  if (!plan.keeps_shard()) return "  (all of them)";
  return plan.gathers() ? "  (its shard)" : "  (its part of those that all ranks read)";
}

/// A line for each run of blocks that differ in a number alone: "layers.0-11".
std::string block_lines(const Plan& plan, const Model& model) {
  std::string out;
  for (size_t i = 0; i < plan.steps.size();) {
    const auto block_at = [&](size_t k) -> const Block& {
      return *model.blocks[static_cast<size_t>(plan.steps[k].block)];
    };
    const std::string line = line_of(plan, block_at(i), plan.steps[i]);
    const auto [stem, first] = numbered(block_at(i).name());
    int64_t last = first;
    size_t next = i + 1;
    for (; first >= 0 && next < plan.steps.size(); ++next) {
      const auto follows = std::pair(stem, last + 1);
      if (numbered(block_at(next).name()) != follows) break;
      if (line_of(plan, block_at(next), plan.steps[next]) != line) break;
      ++last;
    }
    const std::string name = last == first ? block_at(i).name() : fmt::format("{}{}-{}", stem, first, last);
    out += fmt::format("  {:<52} {}\n", name, line);
    i = next;
  }
  return out;
}

}  // namespace

std::string Plan::json() const {
  return Json{{"options", options_json(options)}, {"units", units_json(units)}, {"steps", steps_json(steps)}}.dump(1);
}

uint64_t Plan::hash() const {
  uint64_t hash = 14695981039346656037ull;  // FNV-1a, 64 bits
  for (const char c : json()) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

std::string Plan::print(const Model& model) const {
  const StateBytes bytes = state_bytes();
  std::string out = fmt::format("{} · {} parameters, {} trained · {} rank{} · {} · compute {}\n\n", model.family,
                                format_count(num_params()), format_count(num_trainable()), options.world,
                                options.world == 1 ? "" : "s", options.zero.name(), torch_dtype_name(options.compute));
  out += fmt::format("  {:<52} {:<9} {:<6} {:>8} {:<8} {}\n", "block", "component", "runs", "params", "role",
                     options.training ? "activations" : "");
  out += block_lines(*this, model);
  out += fmt::format(
      "\nEach rank holds, without activations:\n"
      "  parameters  {:>12}{}\n  masters     {:>12}\n  optimizer   {:>12}\n  gradients   {:>12}\n"
      "  gathered    {:>12}  at most, while a block runs and the next arrives\n  together    {:>12}\n",
      format_bytes(bytes.params), words_of_share(*this), format_bytes(bytes.master), format_bytes(bytes.optimizer),
      format_bytes(bytes.gradients), format_bytes(bytes.transient), format_bytes(bytes.total()));
  return out + fmt::format("plan {:016x}\n", hash());
}

}  // namespace lockstep
