// Adapters against what peft recorded: a folder "lora_<family>" with adapters/<kind>, and the run of a training folder.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/hf_config.h"
#include "lockstep/plan/lora_config.h"
#include "lockstep/verify/training.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr Tolerance kTensors{.max = 1e-4};

PlanOptions plan_of(Dtype compute) { return {.zero = {0}, .compute = compute}; }

/// Of the gradient of a key's bias only what the turning of positions leaves is more than rounding, which AdamW scales up to
/// whole steps (training.cpp).
bool is_key_bias(const std::string& name) {
  return name.find("k_proj") != std::string::npos && name.find("bias") != std::string::npos;
}

void compare_tensors(const std::string& run, const fs::path& dir, const Named& found, VerifyReport& report) {
  for (const char* file : {"adapter_model.safetensors", "vit.safetensors"}) {
    if (!fs::exists(dir / file)) continue;
    const Weights stored = Weights::open(dir / file);
    for (const auto& spec : stored.specs()) {
      const auto at = found.find(spec.name);
      if (at == found.end()) {
        report.not_compared(run, "final " + spec.name, "nothing is computed with it: not trained");
      } else if (!is_key_bias(spec.name)) {
        report.compare(run, "final " + spec.name, stored.read(spec.name), at->second, kTensors);
      }
    }
  }
}

struct Recorded {
  const Reference& reference;
  const Json& meta;
  const Hyper& hyper;
  const Named& inputs;
};

/// Why an adapter's config is refused by name; "": it is not.
std::string refusal_of(const fs::path& dir) {
  const fs::path path = dir / "adapter_config.json";
  try {
    (void)LoraConfig::from_json(read_json(path), path.filename().string());
  } catch (const UserError& error) {
    if (error.message().find("is not built") == std::string::npos) throw;
    return error.message();
  }
  return "";
}

size_t tensors_in(const fs::path& dir) { return Weights::open(dir / "adapter_model.safetensors").specs().size(); }

/// Under each of the ways its tensors are called, and its training.
void verify_kind(const fs::path& folder, const std::string& kind, const Recorded& recorded, Dtype compute,
                 VerifyReport& report) {
  for (const std::string shape : {"adapters", "adapters_old", "adapters_text"}) {
    const fs::path dir = folder / shape / kind;
    if (!fs::exists(dir)) continue;
    if (tensors_in(dir) < tensors_in(folder / "adapters" / kind)) {
      report.not_compared(kind, shape, "names of text alone cannot hold all of it");
      continue;
    }
    VerifyModel model(folder / "checkpoint", plan_of(compute), {}, {.dir = dir});
    Named outputs = recorded.reference.outputs.at(kind);
    const bool renamed = shape != "adapters";
    if (renamed) std::erase_if(outputs, [](const auto& one) { return one.first.starts_with("grad:"); });
    verify_case(renamed ? fmt::format("{} ({})", kind, shape) : kind, recorded.inputs, outputs, model, compute, report);
  }
  const std::string run = "train_" + kind;
  if (compute != Dtype::kF32 || !recorded.reference.outputs.contains(run)) return;
  const double ratio = kind == "loraplus" ? recorded.meta.at("hyper").value("loraplus_lr_ratio", 1.0) : 1.0;
  VerifyModel model(folder / "checkpoint", plan_of(compute), recorded.hyper.adamw,
                    {.dir = folder / "adapters" / kind, .loraplus_ratio = ratio});
  verify_adapter_run(run, model, recorded.reference, recorded.meta, recorded.hyper, folder / "final" / kind, report);
}

}  // namespace

void verify_adapter_run(const std::string& run, VerifyModel& model, const Reference& reference, const Json& meta,
                        const Hyper& hyper, const fs::path& final_dir, VerifyReport& report) {
  compare_curves(run, reference.outputs.at(run), train(model, reference, meta, hyper, /*token_mean=*/false), report);
  compare_tensors(run, final_dir, model.weights(), report);
}

void verify_lora_run(const fs::path& folder, const std::string& run, const Reference& reference, const Json& meta,
                     VerifyReport& report) {
  Hyper hyper = read_hyper(HfConfig(meta, (folder / "reference.json").string()).at("hyper"));
  const HfConfig lora(meta.at("hyper").at("lora"), "hyper.lora");
  hyper.lr = lora.number("lr", hyper.lr);
  hyper.adamw.weight_decay = lora.number("weight_decay", 0);
  VerifyModel model(folder / "checkpoint", plan_of(Dtype::kF32), hyper.adamw, {.dir = folder / (run + "_init")});
  verify_adapter_run(run, model, reference, meta, hyper, folder / (run + "_final"), report);
}

void verify_adapters(const fs::path& folder, Dtype compute, VerifyReport& report) {
  const Reference reference = read_reference(folder);
  const Json meta = read_json(folder / "reference.json");
  const Hyper hyper = read_hyper(HfConfig(meta, (folder / "reference.json").string()).at("hyper"));
  const Named inputs = inputs_of(reference, meta, "batch");
  VerifyModel base(folder / "checkpoint", plan_of(compute), {});
  verify_case("base", inputs, reference.outputs.at("base"), base, compute, report);
  for (const auto& [kind, entry] : meta.at("adapters").items()) {
    const std::string refusal = refusal_of(folder / "adapters" / kind);
    if (refusal.empty()) {
      verify_kind(folder, kind, {reference, meta, hyper, inputs}, compute, report);
    } else {
      report.not_built(kind, refusal, "this adapter");
    }
  }
}

}  // namespace lockstep
