// Bases whose matrices are codes against what transformers, peft and bitsandbytes recorded: a folder "qlora_<family>" with
// quantised/<kind>, and adapters over them.
#include <algorithm>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/quantised_tensor.h"
#include "lockstep/tensor/make.h"
#include "lockstep/verify/training.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr Tolerance kOfRounded{.cosine = 0.999};

/// What each code stands for; where the same values are at hand, the codes that they become.
void verify_codes(const fs::path& folder, const std::string& kind, const std::string& base, VerifyReport& report) {
  const Weights codes = Weights::open(folder / base), values = Weights::open(folder / "checkpoint"),
                unpacked = Weights::open(folder / "unpacked" / (kind + ".safetensors"));
  int64_t all = 0, wrong = 0;
  for (const auto& spec : unpacked.specs()) {
    const QuantisedTensor* stored = codes.quantised(spec.name);
    if (stored == nullptr) {
      report.fails(kind, spec.name, "it was unpacked, and is no matrix of codes here");
      continue;
    }
    const Tensor found = empty(spec.shape, Dtype::kF32);
    codes.read_flat(spec.name, 0, found);
    const bool four = stored->format.four_bits();
    report.compare(kind, "unpacked " + spec.name, unpacked.read(spec.name), found, {.max = four ? 0 : 1e-7});
    if (values.find(spec.name) == nullptr) continue;  // under another name
    const QuantLayout layout = QuantLayout::of(stored->format, spec.shape);
    std::vector<uint8_t> expected(static_cast<size_t>(layout.code_bytes)), made(expected.size());
    codes.read_quantised(spec.name, 0, expected);
    quantise(
        stored->format, spec.shape,
        [&](int64_t begin, std::span<float> out) {
          values.read_flat(spec.name, begin, view_memory(out.data(), {static_cast<int64_t>(out.size())}, Dtype::kF32));
        },
        0, made);
    for (size_t i = 0; i < made.size(); ++i) wrong += made[i] == expected[i] ? 0 : 1;
    all += layout.code_bytes;
  }
  report.measured(kind, "codes", static_cast<double>(wrong), 0,
                  fmt::format("{} bytes made of the checkpoint's values", all));
}

}  // namespace

void verify_quantised(const fs::path& folder, Dtype compute, VerifyReport& report) {
  const Reference reference = read_reference(folder);
  const Json meta = read_json(folder / "reference.json");
  const Hyper hyper = read_hyper(HfConfig(meta, (folder / "reference.json").string()).at("hyper"));
  const Named inputs = inputs_of(reference, meta, "batch");
  const PlanOptions plan{.zero = {0}, .compute = compute};
  for (const auto& [kind, entry] : meta.at("quantised").items()) {
    const std::string base = entry.at("folder").get<std::string>();
    if (fs::exists(folder / "unpacked" / (kind + ".safetensors"))) verify_codes(folder, kind, base, report);
    PlanOptions alone = plan;
    alone.training = false;
    VerifyModel model(folder / base, alone, {});
    verify_case(kind, inputs, reference.outputs.at(kind), model, compute, report);
    // Of 8 bits it rounds activations as well, but where it trains.
    const auto rounded = reference.outputs.find(kind + "_eval");
    if (rounded == reference.outputs.end()) continue;
    report.compare(rounded->first, "logits", rounded->second.at("logits"), model.forward(inputs).at("logits"),
                   kOfRounded, inputs.at("attention_mask"));
  }
  for (const auto& [kind, entry] : meta.at("adapters").items()) {
    const fs::path base = folder / entry.at("base").get<std::string>();
    const VerifiedAdapter adapter{.dir = folder / entry.at("adapter").get<std::string>()};
    VerifyModel model(base, plan, {}, adapter);
    verify_case(kind + "+lora", inputs, reference.outputs.at(kind + "+lora"), model, compute, report);
    if (compute != Dtype::kF32 || !reference.outputs.contains("train_" + kind)) continue;
    VerifyModel trained(base, plan, hyper.adamw, adapter);
    verify_adapter_run("train_" + kind, trained, reference, meta, hyper, folder / "final" / kind, report);
  }
}

}  // namespace lockstep
