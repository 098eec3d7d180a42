#include "lockstep/state/merged_adapter.h"

#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/key_map.h"
#include "lockstep/tensor/finite.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/product.h"

namespace lockstep {
namespace {

constexpr int64_t kAtOnce = int64_t{16} << 20;  // elements of a tensor that are in memory together

std::string without_weight(const std::string& key) {
  return key.ends_with(".weight") ? key.substr(0, key.size() - 7) : key;
}

int64_t width_of(const ParamSource& source) {
  return numel_of(source.shape) / std::max<int64_t>(1, source.shape.empty() ? 1 : source.shape[0]);
}

}  // namespace

MergedAdapter::MergedAdapter(const Model& model, const Weights& weights, const KeyMap& keys,
                             const AdapterFolder& adapter, AdapterMatch match)
    : model_(model), weights_(weights), keys_(keys), adapter_(adapter), match_(std::move(match)) {
  untied_ = splits_tied();
  add_model();
  for (const auto& one : match_.layout.modules) add_module(one);
  for (const auto& source : model_.unused) add_idle(source);
}

std::vector<std::string> MergedAdapter::changed() const {
  std::vector<std::string> keys;
  for (const auto& [key, change] : changes_) keys.push_back(key);
  return keys;
}

/// What the adapter's files hold whole, and a head that becomes a tensor of its own.
void MergedAdapter::add_model() {
  for (const auto& block : model_.blocks) {
    for (const auto& spec : block->params()) {
      if (spec.tied && !untied_) continue;
      for (const auto& source : spec.sources) {
        const std::string& own = spec.tied ? spec.untied_key : source.key;
        if (match_.layout.saved.contains(own) || match_.where.contains(own)) {
          changes_[own] = {.from = source, .way = Way::kStored, .a_key = {}};
        } else if (spec.tied) {
          changes_[own] = {.from = source, .a_key = {}};
        }
      }
    }
  }
}

bool MergedAdapter::splits_tied() const {
  const auto changed = [&](const std::string& key) {
    const std::string module = key.substr(0, key.rfind('.'));
    return match_.layout.saved.contains(key) ||
           std::ranges::any_of(match_.where, [&](const auto& one) { return one.first.starts_with(module + ".lora_"); });
  };
  for (const auto& block : model_.blocks) {
    for (const auto& spec : block->params()) {
      if (spec.tied && (changed(spec.untied_key) || changed(spec.sources[0].key))) return true;
    }
  }
  return false;
}

void MergedAdapter::add_module(const AdaptedModule& one) {
  const ParamSpec& spec = model_.blocks[one.module.block]->params()[one.module.param];
  const std::string a_key = without_weight(spec.tied ? spec.untied_key : spec.sources[one.module.first_source].key);
  for (size_t i = 0; i < one.module.sources; ++i) {
    const ParamSource& source = spec.sources[one.module.first_source + i];
    const std::string& own = spec.tied ? spec.untied_key : source.key;
    changes_[own] = {.from = source, .way = Way::kAdded, .module = &one, .a_key = a_key};
    if (match_.layout.config.lora_bias) add_bias(without_weight(own), source.shape[0], one);
  }
}

void MergedAdapter::add_bias(const std::string& module, int64_t rows, const AdaptedModule& of) {
  const std::string bias = module + ".bias";
  if (weights_.find(keys_.on_disk(bias).name) == nullptr) {
    throw usage_error(fmt::format("{}: lora_B has a bias, and the model has none to put it into", module),
                      "use the adapter as it is, with --adapters");
  }
  changes_[bias] = {.from = {bias, {rows}}, .way = Way::kBias, .module = &of, .a_key = {}};
}

bool MergedAdapter::is_idle(const std::string& name) const {
  return std::ranges::find(match_.idle, name, &CarriedTensor::name) != match_.idle.end();
}

/// Of tensors that no block reads and the adapter has parts of all the same.
void MergedAdapter::add_idle(const ParamSource& source) {
  const std::string there = stored_part(match_.naming_of_files, source.key).name;
  if (const auto whole = whole_idle(there); !whole.empty()) {
    match_.where[source.key] = {whole, {}};
    changes_[source.key] = {.from = source, .way = Way::kStored, .a_key = {}};
    return;
  }
  if (!source.key.ends_with(".weight")) return;
  const std::string module = without_weight(there), name = "base_model.model." + module + ".lora_A.weight";
  if (!is_idle(name)) return;
  const int64_t rank = shape_of(adapter_.read(name))[0];
  const std::string key = without_weight(source.key);
  for (const char* part : {".lora_A.weight", ".lora_B.weight", ".lora_B.bias", ".lora_magnitude_vector"}) {
    match_.where[key + part] = {"base_model.model." + module + part, {}};
  }
  idle_.push_back(std::make_unique<AdaptedModule>(
      AdaptedModule{{.name = module, .rows = source.shape[0]}, rank, match_.config.scale_of(module, rank)}));
  changes_[source.key] = {.from = source, .way = Way::kAdded, .module = idle_.back().get(), .a_key = key};
  if (match_.layout.config.lora_bias) add_bias(key, source.shape[0], *idle_.back());
}

/// The tensor of the adapter's files that stands for one of the model that nothing is computed with; "": none.
std::string MergedAdapter::whole_idle(const std::string& there) const {
  const size_t leaf = there.rfind('.');
  std::string inside = there;
  if (leaf != std::string::npos) inside.insert(leaf, ".base_layer");
  for (const std::string& name : {"base_model.model." + there, "base_model.model." + inside, there}) {
    if (is_idle(name)) return name;
  }
  return "";
}

Tensor MergedAdapter::stored(const std::string& key, const Shape& shape) const {
  const Tensor flat = empty({numel_of(shape)}, Dtype::kF32);
  adapter_.read_flat(match_.where.at(key), shape, 0, flat);
  return flat.view(shape);
}

Tensor MergedAdapter::base(const ParamSource& from, int64_t row, int64_t count, int64_t width) const {
  const Tensor values = empty({count * width}, Dtype::kF32);
  keys_.read_flat(weights_, from, row * width, values);
  return values.view({count, width});
}

/// A and B of a change, and what DoRA divides by: kept until another tensor is asked for.
void MergedAdapter::prepare(const ParamSource& source, const Change& change) {
  if (prepared_ == source.key) return;
  prepared_ = source.key;
  const AdaptedModule& one = *change.module;
  const bool table = one.module.table;
  const int64_t rows = source.shape[0], width = width_of(source);
  const std::string own = without_weight(source.key);
  a_ = table ? stored(change.a_key + ".lora_embedding_A", {one.rank, rows})
             : stored(change.a_key + ".lora_A.weight", {one.rank, width});
  b_ = table ? stored(own + ".lora_embedding_B", {width, one.rank}) : stored(own + ".lora_B.weight", {rows, one.rank});
  magnitude_ = Tensor();
  if (!match_.layout.config.dora) return;
  magnitude_ = stored(own + ".lora_magnitude_vector", {table ? width : rows});
  if (!table) return;
  const Tensor squares = zeros({width}, Dtype::kF64);  // over the rows of the table
  const int64_t at_once = std::max<int64_t>(1, kAtOnce / std::max<int64_t>(1, width));
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    const Tensor sum = base(change.from, row, count, width).add(delta(one, row, count));
    squares.add_(to_dtype(sum, Dtype::kF64).square_().sum(0));
  }
  column_norms_ = to_dtype(squares.sqrt(), Dtype::kF32);
}

Tensor MergedAdapter::delta(const AdaptedModule& one, int64_t row, int64_t count) const {
  if (one.module.table) return fn::product(a_.narrow(1, row, count).t().contiguous(), b_.t()).mul_(one.scale);
  return fn::product(b_.narrow(0, row, count), a_).mul_(one.scale);
}

void MergedAdapter::add(const Change& change, int64_t row, const Tensor& matrix) const {
  const AdaptedModule& one = *change.module;
  if (match_.layout.config.changes_base()) {
    const LowRankFactors began = began_as(match_.layout.config.init, matrix, one.rank, one.scale);
    matrix.sub_(began.b.matmul(began.a), one.scale);
  }
  Tensor added = delta(one, row, matrix.size(0));
  // As peft does: a table's is rounded before it is added.
  const Dtype kept = weights_.find(keys_.on_disk(change.from.key).name)->dtype;
  if (one.module.table && !magnitude_.defined()) added = to_dtype(to_dtype(added, kept), Dtype::kF32);
  matrix.add_(added);
  if (!magnitude_.defined()) return;
  if (one.module.table) {
    matrix.mul_(magnitude_.div(column_norms_));
  } else {
    matrix.mul_(magnitude_.narrow(0, row, matrix.size(0)).div(matrix.norm(2, 1)).unsqueeze(1));
  }
}

Tensor MergedAdapter::rows(const ParamSource& source, int64_t row, int64_t count) {
  const auto found = changes_.find(source.key);
  if (found == changes_.end()) return base(source, row, count, width_of(source));
  Tensor values = changed_rows(source, found->second, row, count);
  if (all_finite(values)) return values;
  throw UserError(ExitCode::kNumerics, fmt::format("{}: merged, it is not finite", source.key),
                  "the adapter's training had diverged: take an earlier checkpoint");
}

Tensor MergedAdapter::changed_rows(const ParamSource& source, const Change& change, int64_t row, int64_t count) {
  const int64_t width = width_of(source);
  const auto whole = match_.where.find(source.key);
  if (whole == match_.where.end()) check(change.way != Way::kStored, source.key + " in the adapter's files");
  const Tensor values =
      whole == match_.where.end() ? base(change.from, row, count, width) : empty({count, width}, Dtype::kF32);
  if (whole != match_.where.end()) adapter_.read_flat(whole->second, source.shape, row * width, values.view({-1}));
  if (change.way == Way::kAdded) {
    prepare(source, change);
    add(change, row, values);
  }
  if (change.way == Way::kBias) {
    const std::string module = source.key.substr(0, source.key.rfind('.'));
    values.add_(stored(module + ".lora_B.bias", source.shape).narrow(0, row, count).view({count, 1}),
                change.module->scale);
  }
  return values;
}

void MergedAdapter::read_flat(const ParamSource& source, int64_t begin, const Tensor& out) {
  if (!changes(source.key)) return keys_.read_flat(weights_, source, begin, out);
  const int64_t width = width_of(source), end = begin + out.numel();
  const int64_t at_once =
      takes_whole_matrices() ? source.shape[0] : std::max<int64_t>(1, kAtOnce / std::max<int64_t>(1, width));
  for (int64_t row = takes_whole_matrices() ? 0 : begin / width; row * width < end; row += at_once) {
    const int64_t left = source.shape[0] - row;
    const int64_t count = takes_whole_matrices() ? left : std::min({at_once, left, (end - 1) / width + 1 - row});
    const Tensor values = rows(source, row, count).reshape({-1});
    const int64_t from = std::max(begin, row * width), to = std::min(end, row * width + values.numel());
    out.narrow(0, from - begin, to - from).copy_(values.narrow(0, from - row * width, to - from));
  }
}

}  // namespace lockstep
