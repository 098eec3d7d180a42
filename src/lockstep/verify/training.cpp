#include "lockstep/verify/training.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/clip_image.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/state/sharded_adamw.h"
#include "lockstep/tensor/make.h"
#include "lockstep/train/schedule.h"
#include "lockstep/verify/model.h"
#include "lockstep/verify/parts.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr Tolerance kLoss{.max = 1e-4}, kWeights{.max = 1e-4};

/// What all keys share, softmax does not see: of the gradient of a key bias only what the turning of positions leaves is
/// more than rounding, which AdamW scales up to whole steps. So two right programs differ there by a good part of a step:
/// a key bias is not compared with the recorded one, but what the model says with either.
bool is_key_bias(const std::string& name) { return name.ends_with("k_proj.bias"); }

}  // namespace

Hyper read_hyper(const HfConfig& json) {
  const Json betas = json.json().at("betas");
  return {.lr = json.number("lr", 0),
          .clip = json.number("clip", 0),
          .warmup = json.integer("warmup_steps"),
          .steps = json.integer("steps"),
          .accumulation = json.integer("accumulation"),
          .adamw = {.beta1 = betas.at(0).get<double>(),
                    .beta2 = betas.at(1).get<double>(),
                    .epsilon = json.number("eps", 1e-8),
                    .weight_decay = json.number("weight_decay", 0)}};
}

Named inputs_of(const Reference& reference, const Json& meta, const std::string& name) {
  Named inputs = reference.inputs.at(name);
  if (!meta.contains("pixel_rows")) return inputs;
  std::vector<Tensor> rows;
  const bool stacked = meta.value("pixel_join", "stack") == "stack";  // else patches of any pictures
  for (const auto& image : meta["pixel_rows"].at(name)) {
    const Tensor& pixels = reference.others.at(fmt::format("images/{}", image.get<int64_t>()));
    rows.push_back(stacked ? pixels.unsqueeze(0) : pixels);
  }
  inputs["pixel_values"] = at::cat(rows, 0);
  return inputs;
}

Curves train(VerifyModel& model, const Reference& reference, const Json& meta, const Hyper& hyper, bool token_mean) {
  const Schedule schedule{.kind = ScheduleKind::kCosine,
                          .learning_rate = hyper.lr,
                          .warmup_steps = hyper.warmup,
                          .total_steps = hyper.steps};
  Curves curves;
  for (int64_t step = 0; step < hyper.steps; ++step) {
    std::vector<Named> window;
    int64_t all = 0;
    for (int64_t i = 0; i < hyper.accumulation; ++i) {
      window.push_back(inputs_of(reference, meta, fmt::format("{:02}", step * hyper.accumulation + i)));
      all += count_targets(window.back().at("labels"));
    }
    model.clear_gradients();
    double total = 0;
    for (const auto& inputs : window) {
      const auto own = static_cast<double>(count_targets(inputs.at("labels")));
      const double share = token_mean ? own / static_cast<double>(all) : 1.0 / static_cast<double>(hyper.accumulation);
      const double loss = model.backward(inputs, share / own).text;
      curves.micro.push_back(static_cast<float>(loss / share));
      total += loss;
    }
    const double norm = model.gradient_norm(), rate = schedule.at(step);
    const double factor = hyper.clip > 0 ? std::min(1.0, hyper.clip / (norm + 1e-6)) : 1.0;
    model.update(rate, 1.0 / factor);
    curves.loss.push_back(static_cast<float>(total));
    curves.norm.push_back(static_cast<float>(norm));
    curves.rate.push_back(static_cast<float>(rate));
  }
  return curves;
}

namespace {

Tensor tensor_of(const std::vector<float>& values) {
  return from_values(std::span<const float>(values), {static_cast<int64_t>(values.size())});
}

}  // namespace

void compare_curves(const std::string& run, const Named& expected, const Curves& curves, VerifyReport& report) {
  const std::map<std::string, std::pair<const std::vector<float>*, Tolerance>> known{
      {"loss", {&curves.loss, kLoss}},
      {"micro_loss", {&curves.micro, kLoss}},
      {"lr", {&curves.rate, {.max = 1e-9}}},
      {"grad_norm_before_clip", {&curves.norm, {}}}};
  for (const auto& [name, values] : expected) {
    const auto at = known.find(name);
    if (at == known.end()) {
      report.fails(run, name, "in the reference, and nothing here computes it");
      continue;
    }
    Tolerance tolerance = at->second.second;
    if (name == "grad_norm_before_clip") tolerance.max = 1e-3 * values.abs().max().item<double>();
    report.compare(run, name, values, tensor_of(*at->second.first), tolerance);
  }
}

namespace {

struct Worst {
  double value = 0;
  std::string name;
  void see(double seen, const std::string& of) {
    if (name.empty() || !(seen <= value)) value = seen, name = of;  // NaN stays
  }
  std::string note() const { return "worst: " + name; }
};

void compare_checksums(const std::string& run, const Json& sums, const Named& weights, VerifyReport& report) {
  Worst first, size;
  int64_t carried = 0;
  for (const auto& [name, sum] : sums.items()) {
    const auto at = weights.find(name);
    if (at == weights.end()) {
      ++carried;
      continue;
    }
    if (is_key_bias(name)) continue;
    const Tensor flat = to_dtype(at->second, Dtype::kF64).reshape({-1});
    for (size_t i = 0; i < sum["first8"].size(); ++i) {
      first.see(std::abs(flat[static_cast<int64_t>(i)].item<double>() - sum["first8"][i].get<double>()), name);
    }
    const double found = flat.abs().sum().item<double>(), expected = sum["abs_sum"].get<double>();
    size.see(std::abs(found - expected) / std::max(1.0, expected), name);
  }
  report.measured(run, "final weights, first 8 of each", first.value, kWeights.max, first.note());
  report.measured(run, "final weights, relative sum of sizes", size.value, 1e-5, size.note());
  if (carried > 0) {
    report.not_compared(run, fmt::format("final weights of {} tensors", carried), "no block reads them: not trained");
  }
}

void compare_final_file(const std::string& run, const fs::path& path, const Named& weights, VerifyReport& report) {
  if (!fs::exists(path)) return;
  const Weights stored = Weights::open(path);
  for (const auto& spec : stored.specs()) {
    const auto at = weights.find(spec.name);
    if (at == weights.end()) {
      report.fails(run, "final " + spec.name, "in the reference, and no such weight here");
    } else if (!is_key_bias(spec.name)) {
      report.compare(run, "final " + spec.name, stored.read(spec.name), at->second, kWeights);
    }
  }
}

/// The recorded key biases: whole where the weights are on file, else their first elements before ours.
Named recorded_key_biases(const Json& sums, const fs::path& path, const Named& weights) {
  Named found;
  for (const auto& [name, sum] : sums.items()) {
    const auto at = weights.find(name);
    if (!is_key_bias(name) || at == weights.end()) continue;
    const auto first = sum["first8"].get<std::vector<float>>();
    const Tensor bias = at->second.clone(), values = tensor_of(first);
    bias.narrow(0, 0, values.numel()).copy_(values);
    found[name] = bias;
  }
  if (!fs::exists(path)) return found;
  const Weights stored = Weights::open(path);
  for (const auto& spec : stored.specs()) {
    if (is_key_bias(spec.name) && weights.contains(spec.name)) found[spec.name] = stored.read(spec.name);
  }
  return found;
}

/// The trained model with its own key biases and with the recorded ones. Leaves the latter in the model.
void compare_key_biases(const std::string& run, const Named& recorded, VerifyModel& model, const Named& inputs,
                        VerifyReport& report) {
  if (recorded.empty()) return;
  Named weights = model.weights();
  Worst apart;
  const Tensor ours = model.forward(inputs).at("logits");
  for (const auto& [name, value] : recorded) {
    apart.see(value.sub(weights.at(name)).abs().max().item<double>(), name);
    weights.at(name) = value;
  }
  model.set_weights(weights);
  const Tensor mask = inputs.contains("attention_mask") ? inputs.at("attention_mask") : Tensor();
  const Tensor theirs = model.forward(inputs).at("logits");
  const auto counted = [&](const Tensor& logits_BTV) {
    return mask.defined() ? logits_BTV.mul(to_dtype(mask, Dtype::kF32).unsqueeze(2)) : logits_BTV;
  };
  report.measured(run, "logits with recorded for own key biases",
                  counted(theirs).sub(counted(ours)).abs().max().item<double>(), kWeights.max,
                  fmt::format("the biases: at most {:.2g} apart, much of it rounding; {}", apart.value, apart.note()));
}

/// Each stored image is one of the media files, prepared: the nearest must be near enough.
void verify_stored_images(const fs::path& folder, const Reference& reference, VerifyReport& report) {
  const fs::path path = folder / "checkpoint" / "preprocessor_config.json";
  if (!fs::exists(folder / "media") || !fs::exists(path)) return;
  const ClipImageConfig config = read_clip_image_config(read_json(path), path.string());
  const double std = *std::min_element(config.std.begin(), config.std.end());
  for (const auto& [name, expected] : reference.others) {
    if (!name.starts_with("images/")) continue;
    double best = std::numeric_limits<double>::infinity();
    std::string best_file;
    for (const auto& entry : fs::directory_iterator(folder / "media")) {
      const MediaBlock block = clip_pixels(load_image(entry.path().string(), name), config, name);
      const Tensor found = from_values(std::span<const float>(block.values), block.shape);
      const Tensor one = found.squeeze(0);
      if (shape_of(one) != shape_of(expected)) continue;
      const double apart = one.sub(expected).abs().max().item<double>();
      if (apart < best) best = apart, best_file = entry.path().filename().string();
    }
    report.measured("inputs", name + " from media", best, pixel_tolerance({best_file}, std).max,
                    "nearest: " + best_file);
  }
}

}  // namespace

void verify_training(const fs::path& folder, VerifyReport& report) {
  const HfConfig config = HfConfig::load(folder / "checkpoint");
  const Reference reference = read_reference(folder);
  const Json meta = read_json(folder / "reference.json");
  const Hyper hyper = read_hyper(HfConfig(meta, (folder / "reference.json").string()).at("hyper"));
  const bool built = family_built(config) != nullptr;
  if (built) verify_stored_images(folder, reference, report);
  for (const auto& [run, expected] : reference.outputs) {
    if (!built) {
      report.not_built(run, fmt::format("{} curves", expected.size()), "this family");
      continue;
    }
    if (!run.starts_with("full_")) {
      verify_lora_run(folder, run, reference, meta, report);
      continue;
    }
    PlanOptions plan{.zero = {0}, .compute = Dtype::kF32};
    if (config.has("vision_config")) plan.frozen = {Component::kVision};
    VerifyModel model(folder / "checkpoint", plan, hyper.adamw);
    compare_curves(run, expected, train(model, reference, meta, hyper, run == "full_token_mean"), report);
    const Named weights = model.weights();
    const Json sums = meta["final_checksums"].at(run);
    const fs::path file = folder / ("final_" + run + ".safetensors");
    compare_checksums(run, sums, weights, report);
    compare_final_file(run, file, weights, report);
    compare_key_biases(run, recorded_key_biases(sums, file, weights), model, inputs_of(reference, meta, "00"), report);
  }
}

}  // namespace lockstep
