#include "lockstep/state/checkpoint_model.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/model/safetensors_writer.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

/// Where one tensor of the store goes on disk: its own place, and a tied head's where the source stores one.
using Places = std::map<std::string, std::vector<StoredPart>>;

std::optional<std::string> tied_owner(const Model& model) {
  for (const auto& block : model.blocks) {
    for (const auto& spec : block->params()) {
      if (spec.tied) return spec.sources.at(0).key;
    }
  }
  return std::nullopt;
}

/// visit(parameter's tensor, whether it is trained)
void for_each_tensor(const Plan& plan, const std::function<void(const ParamSource&, bool)>& visit) {
  for (const auto& unit : plan.units) {
    for (const auto& placed : unit.params) {
      for (const auto& part : placed.spec.sources) visit(part, unit.trainable);
    }
  }
}

Places places_of(const ModelSource& source, const Plan& plan, bool with_borrowed) {
  Places places;
  std::set<std::string> owned;  // names on disk
  for_each_tensor(plan, [&](const ParamSource& part, bool) {
    const StoredPart stored = source.keys.on_disk(part.key);
    owned.insert(stored.name);
    if (with_borrowed || !source.weights.is_borrowed(stored.name)) places[part.key].push_back(stored);
  });
  const auto tied = tied_owner(source.model);
  for (const auto& spec : source.weights.specs()) {
    if (tied && !owned.contains(spec.name) && spec.name.ends_with("lm_head.weight"))
      places[*tied].push_back({spec.name, {}});
  }
  return places;
}

/// Everything that rank 0 does; the first error is kept, because the other ranks still need it in their gathers.
class WeightsFile {
 public:
  WeightsFile(const ModelSource& source, const Plan& plan)
      : source_(source),
        saves_borrowed_(saves_borrowed(source, plan)),
        places_(places_of(source, plan, saves_borrowed_)) {
    for (const auto& [key, places] : places_) {
      for (const auto& place : places) of_model_.insert(place.name);
    }
  }

  void open(Dtype dtype, int64_t max_shard_bytes, const fs::path& dir) {
    attempt([&] {
      std::vector<TensorSpec> specs = source_.weights.specs();
      std::erase_if(specs, [&](const auto& one) { return !saves_borrowed_ && source_.weights.is_borrowed(one.name); });
      for (auto& spec : specs) {
        if (of_model_.contains(spec.name)) {
          spec.dtype = dtype;
        } else {
          carried_.push_back(spec.name);
        }
      }
      writer_ = std::make_unique<SafetensorsWriter>(dir, std::move(specs),
                                                    SafetensorsOptions{.max_shard_bytes = max_shard_bytes});
    });
  }
  void write(const ParamSource& part, const Tensor& value) {
    attempt([&] {
      const auto places = places_.find(part.key);
      if (places == places_.end()) return;  // it stays in the folder that it is borrowed of
      for (const auto& place : places->second) write_part(*writer_, place, value);
    });
  }
  void finish() {
    attempt([&] {
      for (const auto& name : carried_) writer_->write(name, source_.weights.read(name));
      writer_->finish();
    });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void attempt(const std::function<void()>& work) {
    if (error_) return;
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  const ModelSource& source_;
  bool saves_borrowed_;
  Places places_;
  std::set<std::string> of_model_;  // names on disk
  std::vector<std::string> carried_;
  std::unique_ptr<SafetensorsWriter> writer_;
  std::exception_ptr error_;
};

}  // namespace

bool saves_borrowed(const ModelSource& source, const Plan& plan) {
  bool any = false;
  for_each_tensor(plan, [&](const ParamSource& part, bool trained) {
    any = any || (trained && source.weights.is_borrowed(source.keys.on_disk(part.key).name));
  });
  return any;
}

bool trains_only(const ModelSource& source, const Plan& plan, const std::string& names) {
  bool any = false, others = false;
  for_each_tensor(plan, [&](const ParamSource& part, bool trained) {
    any = any || trained;
    others = others || (trained && !source.keys.on_disk(part.key).name.starts_with(names));
  });
  return any && !others;
}

void write_weights(const ModelSource& source, ParamStore& store, Communicator& comm, Dtype dtype,
                   int64_t max_shard_bytes, const fs::path& dir) {
  constexpr int kRoot = 0;
  WeightsFile file(source, store.plan());
  const bool writes = comm.rank() == kRoot;
  if (writes) file.open(dtype, max_shard_bytes, dir);
  store.visit_full(comm, kRoot, dtype, [&](const ParamSource& part, const Tensor& value) { file.write(part, value); });
  if (writes) file.finish();
}

}  // namespace lockstep
