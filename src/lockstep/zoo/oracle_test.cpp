// Every block of every family against outputs that transformers recorded (tests/fixtures/oracle).
#include <filesystem>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/batch.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/product.h"
#include "lockstep/zoo/hf_outputs.h"
#include "lockstep/zoo/registry.h"
#include "lockstep/zoo/straight_run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Absolute tolerances of the recorded outputs; gradients relative to their largest entry. Source:
/// tests/oracles/README.md.
struct Tolerance {
  double logits, states, loss, gradients;
};
constexpr Tolerance kFloat32{2e-4, 1e-4, 2e-5, 1e-4};

struct Oracle {
  explicit Oracle(const fs::path& folder)
      : dir(folder),
        config(HfConfig::load(folder / "checkpoint")),
        model(family_of(config).build(config)),
        weights(Weights::open(folder / "checkpoint")),
        keys(KeyMap::match(model, weights)),
        reference(Weights::open(folder / "reference.safetensors")) {}

  bool has(const std::string& name) const { return reference.find(name) != nullptr; }
  Tensor at(const std::string& name) const { return reference.read(name); }
  std::vector<std::string> cases() const {
    std::vector<std::string> names;
    for (const auto& spec : reference.specs()) {
      const std::string suffix = "/in/input_ids";
      if (spec.name.ends_with(suffix)) names.push_back(spec.name.substr(0, spec.name.size() - suffix.size()));
    }
    return names;
  }
  HfInputs inputs(const std::string& name) const {
    HfInputs all;
    for (const auto& spec : reference.specs()) {
      if (spec.name.starts_with(name + "/in/")) all[spec.name.substr(name.size() + 4)] = at(spec.name);
    }
    return all;
  }
  HfInputs outputs(const std::string& name) const {
    HfInputs all;
    for (const auto& spec : reference.specs()) {
      if (spec.name.starts_with(name + "/out/")) all[spec.name.substr(name.size() + 5)] = at(spec.name);
    }
    return joined_outputs(std::move(all), inputs(name));
  }
  Batch batch(const std::string& name) const {
    const HfInputs recorded = inputs(name);
    return collate(family_of(config).rows_of_hf(config, recorded), {.layout = layout_of(recorded)});
  }

  fs::path dir;
  HfConfig config;
  Model model;
  Weights weights;
  KeyMap keys;
  Weights reference;
};

std::vector<fs::path> oracle_folders() {
  std::vector<fs::path> folders;
  for (const auto& set : fs::directory_iterator(fs::path(LOCKSTEP_FIXTURES) / "oracle")) {
    for (const auto& family : fs::directory_iterator(set)) {
      const std::string name = family.path().filename().string();
      if (fs::exists(family.path() / "checkpoint") && !name.starts_with("train_")) {
        folders.push_back(family.path());
      }
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

double largest_difference(const Tensor& got, const Tensor& wanted) {
  return got.detach().to(at::kFloat).sub(wanted).abs().max().item<double>();
}

/// Rows of padding hold whatever the library made of them: they are cleared on both sides.
Tensor at_tokens(const Tensor& value_BTX, const Tensor& mask_BT) {
  return value_BTX.detach().to(at::kFloat).mul(mask_BT.unsqueeze(-1));
}

double token_weight(const Tensor& labels) {
  return 1.0 / static_cast<double>(labels.narrow(1, 1, labels.size(1) - 1).ne(-100).sum().item<int64_t>());
}

void expect_near(const Tensor& got, const Tensor& wanted, const Tensor& mask, double tolerance) {
  ASSERT_EQ(got.sizes(), wanted.sizes());
  const bool padded = wanted.dim() == 3 && wanted.size(0) == mask.size(0) && wanted.size(1) == mask.size(1);
  EXPECT_LE(largest_difference(padded ? at_tokens(got, mask) : got, padded ? at_tokens(wanted, mask) : wanted),
            tolerance);
}

void expect_case(const Oracle& oracle, const StraightRun& run, const std::string& name, const Tolerance& tolerance) {
  if (oracle.has(name + "/in/speech_codes") || oracle.has(name + "/out/talker_codes")) return;  // verify has a talker's
  SCOPED_TRACE(oracle.dir.string() + " " + name);
  const Tensor mask = oracle.at(name + "/in/attention_mask");
  std::vector<std::pair<std::string, Tensor>> taps;
  Context context{.logits = LogitsWanted::kAll};
  context.tap = [&](const std::string& tapped, const Tensor& value) { taps.emplace_back(tapped, value.detach()); };
  Batch batch = oracle.batch(name);
  if (oracle.has(name + "/in/labels")) {
    context.loss_weight = token_weight(oracle.at(name + "/in/labels"));
    context.loss_chunk = 16;
  }
  const Tensor* positions = batch.flow.find("positions");
  HfInputs found;
  if (positions != nullptr) found["position_ids"] = *positions;
  const Flow out = run.forward(std::move(batch.flow), context);
  found.merge(outputs_of_taps(taps));
  found["logits"] = out["logits"];
  std::map<std::string, Tensor> gradients;
  if (out.has("loss")) gradients = run.gradients(out["loss"]);
  size_t compared = 0;
  for (const auto& [recorded, stored] : oracle.outputs(name)) {
    if (recorded == "rope_deltas") continue;  // shown by the tokens generated
    const Tensor wanted = stored.to(at::kFloat);
    SCOPED_TRACE(recorded);
    ++compared;
    if (recorded == "loss") {
      EXPECT_NEAR(out["loss"].item<double>(), wanted.item<double>(), tolerance.loss);
    } else if (recorded.starts_with("grad:")) {
      const auto at = gradients.find(recorded.substr(5));  // layers that nobody looks at have none
      const Tensor got = at == gradients.end() ? wanted.mul(0.0) : at->second;
      EXPECT_LE(largest_difference(got, wanted), tolerance.gradients * wanted.abs().max().item<double>() + 1e-6);
    } else if (recorded == "pooled") {
      const Tensor states = at_tokens(found.at("last_hidden_state"), mask);
      EXPECT_LE(largest_difference(states.sum(1).div(mask.sum(1, true)), wanted), tolerance.states);
    } else {
      expect_near(found.at(recorded), wanted, mask, recorded == "logits" ? tolerance.logits : tolerance.states);
    }
  }
  EXPECT_GT(compared, 0U);
}

void expect_greedy(const Oracle& oracle, const StraightRun& run, const std::string& name) {
  SCOPED_TRACE(oracle.dir.string() + " " + name);
  const Tensor wanted = oracle.at(name + "/out/generated"), margins = oracle.at(name + "/out/generated_margin");
  HfInputs inputs = oracle.inputs(name);
  auto prompts = family_of(oracle.config).rows_of_hf(oracle.config, inputs);
  for (auto& prompt : prompts) prompt.labels.clear();
  const Tensor got = run.greedy(prompts, wanted.size(1));
  for (int64_t r = 0; r < got.size(0); ++r) {
    for (int64_t t = 0; t < got.size(1) && margins[r][t].item<float>() > 1e-3F; ++t) {
      ASSERT_EQ(got[r][t].item<int64_t>(), wanted[r][t].item<int64_t>()) << "row " << r << " token " << t;
    }
  }
}

TEST(Oracle, EveryRecordedOutputIsReproducedInFloat32) {
  const auto folders = oracle_folders();
  ASSERT_GE(folders.size(), 5U);
  for (const auto& folder : folders) {
    const Oracle oracle(folder);
    const StraightRun run(oracle.model, oracle.weights, oracle.keys, Dtype::kF32);
    for (const auto& name : oracle.cases()) {
      if (name.starts_with("gen")) {
        expect_greedy(oracle, run, name);
      } else {
        expect_case(oracle, run, name, kFloat32);
      }
    }
  }
}

/// Bars of a 16-bit dtype: largest and mean difference of a logit, of the loss, and the cosine of each gradient.
struct Rounding {
  Dtype dtype;
  double logit, mean_logit, loss, cosine;
};
constexpr Rounding kBfloat16{Dtype::kBF16, 0.6, 0.06, 2e-2, 0.99};
/// Three bits more than bfloat16 has.
constexpr Rounding kFloat16{Dtype::kF16, 0.6 / 8, 0.06 / 8, 2e-2 / 8, 0.9995};

void expect_within(const Rounding& rounding) {
  for (const auto& folder : oracle_folders()) {
    const Oracle oracle(folder);
    if (!oracle.has("batch/out/logits")) continue;
    SCOPED_TRACE(folder.string());
    const StraightRun run(oracle.model, oracle.weights, oracle.keys, rounding.dtype);
    const std::string name = "batch";
    const double weight = token_weight(oracle.at(name + "/in/labels"));
    const Flow out = run.forward(oracle.batch(name).flow, {.loss_weight = weight, .logits = LogitsWanted::kAll});
    const Tensor mask = oracle.at(name + "/in/attention_mask");
    const Tensor difference =
        at_tokens(out["logits"], mask).sub(at_tokens(oracle.at(name + "/out/logits"), mask)).abs();
    EXPECT_LE(difference.max().item<double>(), rounding.logit);
    EXPECT_LE(difference.mean().item<double>(), rounding.mean_logit);
    EXPECT_NEAR(out["loss"].item<double>(), oracle.at(name + "/out/loss").item<double>(), rounding.loss);
    const auto gradients = run.gradients(out["loss"]);
    for (const auto& spec : oracle.reference.specs()) {
      const std::string prefix = name + "/out/grad:";
      if (!spec.name.starts_with(prefix)) continue;
      const auto found = gradients.find(spec.name.substr(prefix.size()));
      if (found == gradients.end()) {
        ADD_FAILURE() << "no gradient of " << spec.name;
        continue;
      }
      const Tensor wanted = oracle.at(spec.name).flatten(), got = found->second.flatten().to(at::kFloat);
      EXPECT_GT(got.dot(wanted).div(got.norm().mul(wanted.norm())).item<double>(), rounding.cosine) << spec.name;
    }
  }
}

TEST(Oracle, Bfloat16StaysWithinItsRounding) { expect_within(kBfloat16); }

TEST(Oracle, Bfloat16StaysWithinItsRoundingOnAProcessorThatCannotMultiplyIt) {
  const NativeProducts none(false);
  expect_within(kBfloat16);
}

TEST(Oracle, Float16StaysWithinItsRounding) { expect_within(kFloat16); }

TEST(Oracle, TheConfigOfTransformers5GivesTheSameModel) {
  for (const auto& folder : oracle_folders()) {
    if (!fs::exists(folder / "config_transformers5.json")) continue;  // of a model that transformers 5 does not have
    SCOPED_TRACE(folder.string());
    const HfConfig old_config = HfConfig::load(folder / "checkpoint");
    const HfConfig new_config(read_json(folder / "config_transformers5.json"), "config_transformers5.json");
    const Model old_model = family_of(old_config).build(old_config),
                new_model = family_of(new_config).build(new_config);
    ASSERT_EQ(old_model.blocks.size(), new_model.blocks.size());
    for (size_t i = 0; i < old_model.blocks.size(); ++i) {
      const auto &a = old_model.blocks[i]->params(), &b = new_model.blocks[i]->params();
      ASSERT_EQ(a.size(), b.size());
      for (size_t p = 0; p < a.size(); ++p) EXPECT_EQ(a[p].sources, b[p].sources);
    }
    const Tensor forty = to_dtype(zeros({1, 40}, Dtype::kF32), Dtype::kI64);
    const Flow ids{{"input_ids", forty}, {"speech_positions", forty.add(7)}};
    for (size_t i = 0; i < old_model.blocks.size(); ++i) {
      if (!old_model.blocks[i]->name().ends_with("rotary_emb")) continue;
      const Flow a = old_model.blocks[i]->forward(Params({}, {}), ids, {});
      const Flow b = new_model.blocks[i]->forward(Params({}, {}), ids, {});
      const std::string& cos = old_model.blocks[i]->writes().front();
      EXPECT_TRUE(a[cos].equal(b[cos]));
    }
  }
}

TEST(Oracle, EveryTensorNameOfTransformers5IsFound) {
  for (const auto& folder : oracle_folders()) {
    if (!fs::exists(folder / "names_transformers5.json")) continue;
    SCOPED_TRACE(folder.string());
    const Oracle oracle(folder);
    std::set<std::string> names;
    for (const auto& name : read_json(folder / "names_transformers5.json")) names.insert(name.get<std::string>());
    size_t found = 0, wanted = 0;
    std::vector<Dialect> dialects = oracle.model.dialects;
    dialects.push_back({"released", {}});
    for (const auto& dialect : dialects) {
      size_t here = 0;
      wanted = 0;
      for (const auto& block : oracle.model.blocks) {
        for (const auto& param : block->params()) {
          for (const auto& source : param.sources) {
            ++wanted;
            here += names.contains(stored_part(dialect, source.key).name) ? 1 : 0;
          }
        }
      }
      found = std::max(found, here);
    }
    EXPECT_EQ(found, wanted);
  }
}

}  // namespace
}  // namespace lockstep
