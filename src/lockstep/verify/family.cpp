#include <algorithm>
#include <cmath>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/state/sharded_adamw.h"
#include "lockstep/tensor/make.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/verify/model.h"
#include "lockstep/verify/parts.h"
#include "lockstep/zoo/hf_outputs.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

/// Source: the oracle's README, "Recommended tolerances"; float16 has three bits more than bfloat16.
Tolerance tolerance_of(const std::string& tensor, const Tensor& expected, Dtype compute) {
  const bool exact = compute == Dtype::kF32;
  const double unit = compute == Dtype::kF16 ? 0.125 : 1.0;
  if (tensor.starts_with("grad:")) {
    if (!exact) return {.cosine = compute == Dtype::kF16 ? 0.9995 : 0.99};
    return {.max = 1e-4 * expected.abs().max().item<double>() + 1e-6};
  }
  if (tensor == "logits" || tensor == "speech_logits")
    return exact ? Tolerance{.max = 2e-4} : Tolerance{.max = 0.6 * unit, .mean = 0.06 * unit};
  if (tensor == "loss" || tensor == "speech_loss") return {.max = exact ? 2e-5 : 2e-2 * unit};
  if (!expected.is_floating_point()) return {.max = 0};
  if (tensor == "pooled") return {.max = exact ? 5e-5 : 0.05 * unit};
  if (exact) return {.max = 1e-4};
  // For activations of order one, whose largest are about 3; bf16 rounds larger ones more coarsely.
  return {.max = 0.1 * unit * std::max(1.0, expected.abs().max().item<double>() / 3), .mean = 0.02 * unit};
}

/// How many tokens of a row were generated: a reference that stopped by itself is filled up with zeros.
int64_t generated_length(const Tensor& row) {
  int64_t length = row.size(0);
  while (length > 0 && row[length - 1].item<int64_t>() == 0) --length;
  return row.size(0) - length >= 2 ? length : row.size(0);
}

/// Greedy tokens must agree up to the first step at which the reference itself was undecided.
void compare_generated(const std::string& name, const Tensor& expected, const Tensor& margins, const Tensor& found,
                       double least_margin, VerifyReport& report) {
  int64_t wrong = 0, compared = 0;
  for (int64_t row = 0; row < expected.size(0); ++row) {
    const int64_t length = std::min(generated_length(expected[row]), margins.size(1));
    for (int64_t step = 0; step < length; ++step) {
      if (margins[row][step].item<double>() < least_margin) break;
      ++compared;
      wrong += expected[row][step].item<int64_t>() == found[row][step].item<int64_t>() ? 0 : 1;
    }
  }
  if (compared == 0) {
    report.not_compared(name, "generated",
                        fmt::format("the reference decided no token by a margin of {:g}", least_margin));
    return;
  }
  report.measured(name, "generated", static_cast<double>(wrong), 0,
                  fmt::format("{} of {} tokens decided by a margin of {:g}", compared, expected.numel(), least_margin));
}

/// A step without its code differs by that code's embedding.
constexpr double kOtherBeginning = 0.05;

/// What generate() of a model that talks made on the way from an answer to its codes. What a vocoder makes of them is not computed here.
void verify_speech(const std::string& name, const Named& inputs, const Named& outputs, VerifyModel& model,
                   Dtype compute, VerifyReport& report) {
  const Tensor& sequence = outputs.at("thinker_sequence");
  const int64_t prompt = inputs.at("input_ids").size(1);
  const Tensor answer = model.generate(inputs, sequence.size(1) - prompt);
  report.compare(name, "thinker_sequence", sequence.narrow(1, prompt, answer.size(1)), answer, {.max = 0}, Tensor());
  const int64_t codes = outputs.at("talker_codes").size(1);
  Named found = model.speak(inputs, sequence, codes);
  const auto begun = outputs.find("talker_inputs_embeds");
  const auto apart = [&] { return found.at(begun->first).sub(begun->second).abs().max().item<double>(); };
  if (begun != outputs.end() && begun->second.sizes() == found.at(begun->first).sizes() && apart() > kOtherBeginning) {
    Named bare = model.speak(inputs, sequence, codes, /*bare=*/true);
    std::swap(found, bare);
    if (apart() > kOtherBeginning) std::swap(found, bare);
    report.not_compared(
        name, "begin of speech",
        "recorded by a transformers that leaves out the codes that begin it: compared so; infer says them");
  }
  for (const auto& [tensor, expected] : outputs) {
    const auto at = found.find(tensor);
    if (at != found.end()) {
      const std::string like = tensor.ends_with("logits") ? "logits" : tensor;
      report.compare(name, tensor, expected, at->second, tolerance_of(like, expected, compute), Tensor());
    } else if (tensor != "thinker_sequence") {
      report.not_compared(name, tensor, "what a vocoder makes, or an id that others follow from");
    }
  }
}

}  // namespace

void verify_case(const std::string& name, const Named& inputs, const Named& outputs, VerifyModel& model, Dtype compute,
                 VerifyReport& report) {
  if (outputs.contains("generated")) {
    const Tensor& expected = outputs.at("generated");
    compare_generated(name, expected, outputs.at("generated_margin"), model.generate(inputs, expected.size(1)),
                      compute == Dtype::kF32 ? 1e-3 : 0.5, report);
    return;
  }
  const bool is_said = outputs.contains("talker_codes") || outputs.contains("speech_loss");
  if (is_said && !model.speaks()) {
    report.not_compared(name, fmt::format("{} tensors", outputs.size()), "this folder has no talker");
    return;
  }
  if (outputs.contains("talker_codes")) return verify_speech(name, inputs, outputs, model, compute, report);
  Named found = model.forward(inputs);
  if (outputs.contains("loss")) {
    model.clear_gradients();
    const double weight = 1.0 / static_cast<double>(std::max<int64_t>(1, count_targets(inputs.at("labels"))));
    const auto losses = model.backward(inputs, weight);
    found["loss"] = full({}, losses.text, Dtype::kF32);
    found["speech_loss"] = full({}, losses.speech, Dtype::kF32);
    for (auto& [key, gradient] : model.gradients()) found["grad:" + key] = gradient;
  }
  const auto mask = inputs.find("attention_mask");
  for (const auto& [tensor, expected] : joined_outputs(outputs, inputs)) {
    const auto at = found.find(tensor);
    if (at == found.end()) {
      report.fails(name, tensor, "in the reference, and nothing here computes it");
      continue;
    }
    report.compare(name, tensor, expected, at->second, tolerance_of(tensor, expected, compute),
                   mask == inputs.end() || expected.dim() < 3 ? Tensor() : mask->second);
  }
}

namespace {

/// The ids of a row without its padding.
std::vector<int32_t> real_ids(const Named& inputs, int64_t row) {
  const Tensor ids = inputs.at("input_ids")[row], mask = inputs.at("attention_mask")[row];
  std::vector<int32_t> out;
  for (int64_t i = 0; i < ids.numel(); ++i) {
    if (mask[i].item<int64_t>() == 1) out.push_back(static_cast<int32_t>(ids[i].item<int64_t>()));
  }
  return out;
}

/// Prompts of the JSON through our tokenizer: rows of the cases made of them. `expand`: what "<image>" stands for.
void verify_prompts(const fs::path& folder, const Json& meta, const Reference& reference,
                    const std::string& image_tokens, VerifyReport& report) {
  const auto batch = reference.inputs.find("batch");
  if (!meta.contains("prompts") || batch == reference.inputs.end()) return;
  const Tokenizer tokenizer = Tokenizer::load(folder / "checkpoint");
  const auto encode = [&](std::string text) {
    for (size_t at = 0; !image_tokens.empty() && (at = text.find("<image>", at)) != std::string::npos;
         at += image_tokens.size()) {
      text.replace(at, 7, image_tokens);
    }
    return tokenizer.encode(text, {.add_special_tokens = true});
  };
  const auto compare_rows = [&](const std::string& name, const Named& inputs, const std::string& until) {
    int64_t wrong = 0;
    const int64_t rows = inputs.at("input_ids").size(0);
    for (int64_t row = 0; row < rows; ++row) {
      auto prompt = meta["prompts"][static_cast<size_t>(row)].get<std::string>();
      const size_t end = until.empty() ? std::string::npos : prompt.find(until);
      if (end != std::string::npos) prompt.resize(end + until.size());
      wrong += encode(prompt) == real_ids(inputs, row) ? 0 : 1;
    }
    report.measured(name, "input_ids from prompts", static_cast<double>(wrong), 0, fmt::format("{} rows", rows));
  };
  compare_rows("batch", batch->second, "");
  const auto left = reference.inputs.find("gen_left");
  if (left != reference.inputs.end()) compare_rows("gen_left", left->second, image_tokens.empty() ? "" : " ASSISTANT:");
}

void verify_cases(const fs::path& folder, const std::string& variant, const Reference& reference, Dtype compute,
                  VerifyReport& report) {
  VerifyModel model(folder / (variant.empty() ? "checkpoint" : kVariant + variant), {.zero = {0}, .compute = compute},
                    {});
  for (const auto& [name, outputs] : reference.outputs) {
    const std::string owner = variant_of_case(folder, name);
    if (!owner.empty() && owner != variant) continue;
    const auto inputs = reference.inputs.find(name);
    const std::string shown = owner == variant ? name : fmt::format("{} ({})", name, variant);
    if (inputs == reference.inputs.end()) {
      report.fails(shown, "inputs", "the reference holds outputs of this case and no inputs");
      continue;
    }
    verify_case(shown, inputs->second, outputs, model, compute, report);
  }
}

}  // namespace

std::vector<std::string> variants_of(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name.starts_with(kVariant)) names.push_back(name.substr(kVariant.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string variant_of_case(const fs::path& folder, const std::string& name) {
  const auto variants = variants_of(folder);
  const auto owner = std::ranges::find_if(variants, [&](const auto& one) { return name.starts_with(one + "_"); });
  return owner == variants.end() ? "" : *owner;
}

Reference read_reference(const fs::path& folder) {
  const Weights weights = Weights::open(folder / "reference.safetensors");
  Reference reference;
  for (const auto& spec : weights.specs()) {
    const size_t in = spec.name.find("/in/"), out = spec.name.find("/out/");
    if (in != std::string::npos) {
      reference.inputs[spec.name.substr(0, in)][spec.name.substr(in + 4)] = weights.read(spec.name);
    } else if (out != std::string::npos) {
      reference.outputs[spec.name.substr(0, out)][spec.name.substr(out + 5)] = weights.read(spec.name);
    } else {
      reference.others[spec.name] = weights.read(spec.name);
    }
  }
  return reference;
}

void verify_family(const fs::path& folder, Dtype compute, VerifyReport& report) {
  const HfConfig config = HfConfig::load(folder / "checkpoint");
  const Reference reference = read_reference(folder);
  if (family_built(config) == nullptr) {
    for (const auto& [name, outputs] : reference.outputs) {
      report.not_built(name, fmt::format("{} tensors", outputs.size()), join(config.texts("architectures"), " "));
    }
    return;
  }
  const Json meta = read_json(folder / "reference.json");
  std::string image_tokens;
  if (meta.contains("media") && config.has("image_seq_length")) {
    for (int64_t i = 0; i < config.integer("image_seq_length"); ++i) image_tokens += "<image>";
  }
  verify_prompts(folder, meta, reference, image_tokens, report);
  verify_media(folder, meta, reference, report);
  verify_cases(folder, "", reference, compute, report);
  for (const auto& variant : variants_of(folder)) verify_cases(folder, variant, reference, compute, report);
  for (const auto& [name, value] : reference.others) {
    report.not_compared(name, spec_of(value, "").describe(), "neither an input nor an output of a case");
  }
}

}  // namespace lockstep
