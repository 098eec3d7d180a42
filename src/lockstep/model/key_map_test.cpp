#include "lockstep/model/key_map.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/model/config_guess.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class Layer final : public Block {
 public:
  explicit Layer(int64_t mlp) : Block("language_model.model.layers.0", Component::kLlm, Modality::kText) {
    fused("qkv.weight", {{name() + ".self_attn.q_proj.weight", {8, 8}}, {name() + ".self_attn.k_proj.weight", {4, 8}}});
    param("mlp.down_proj.weight", {8, mlp});
    param_at("embed", "language_model.model.embed_tokens.weight", {10, 8});
    tied("head", "language_model.model.embed_tokens.weight", {10, 8}, "language_model.lm_head.weight");
  }
  Flow forward(const Params&, const Flow& in, const Context&) const override { return in; }
};

Model model_with(int64_t mlp) {
  Model model;
  model.family = "test";
  model.add<Layer>(mlp);
  model.unused = {{"language_model.model.norm2.weight", {8}}};
  model.dialects = {{"in memory", {{"language_model.model.*", "model.language_model.*"}}}};
  return model;
}

class KeyMapTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) /
           ("key_map_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    write_json(
        dir_ / "config.json",
        parse_json(
            R"({"model_type": "test", "text_config": {"hidden_size": 8, "intermediate_size": 16, "vocab_size": 10,
                              "num_attention_heads": 2, "num_key_value_heads": 1}})",
            "test"));
  }
  void TearDown() override { fs::remove_all(dir_); }

  Weights weights(std::vector<TensorSpec> specs) {
    SafetensorsWriter out(dir_, specs);
    for (const auto& spec : specs) out.write(spec.name, zeros(spec.shape, spec.dtype));
    out.finish();
    return Weights::open(dir_);
  }
  Weights layer(const std::string& prefix, int64_t mlp, std::vector<TensorSpec> more = {}) {
    more.push_back({prefix + "layers.0.self_attn.q_proj.weight", Dtype::kBF16, {8, 8}});
    more.push_back({prefix + "layers.0.self_attn.k_proj.weight", Dtype::kBF16, {4, 8}});
    more.push_back({prefix + "layers.0.mlp.down_proj.weight", Dtype::kBF16, {8, mlp}});
    more.push_back({prefix + "embed_tokens.weight", Dtype::kBF16, {10, 8}});
    return weights(std::move(more));
  }
  static std::string error(const Model& model, const Weights& weights) {
    try {
      (void)KeyMap::match(model, weights);
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
      return e.what();
    }
    return "no error";
  }
  fs::path dir_;
};

TEST_F(KeyMapTest, TakesTheDialectUnderWhichMostKeysAreFound) {
  const Model model = model_with(16);
  const Weights released = layer("language_model.model.", 16);
  EXPECT_EQ(KeyMap::match(model, released).dialect(), "released");
  const Weights other = layer("model.language_model.", 16);
  const KeyMap keys = KeyMap::match(model, other);
  EXPECT_EQ(keys.dialect(), "in memory");
  EXPECT_EQ(keys.on_disk("language_model.model.layers.0.x").name, "model.language_model.layers.0.x");
  EXPECT_EQ(keys.on_disk("vision.x").name, "vision.x");
}

TEST_F(KeyMapTest, WhatIsOnlyCarriedThroughTellsTheDialectToo) {
  Model model = model_with(16);
  model.dialects.push_back({"moved", {{"language_model.model.norm2.*", "moved.*"}}});
  const Weights moved = layer("language_model.model.", 16, {{"moved.weight", Dtype::kBF16, {8}}});
  const KeyMap keys = KeyMap::match(model, moved);
  EXPECT_EQ(keys.dialect(), "moved");
  EXPECT_TRUE(unmatched(model, moved, keys).extra.empty());
}

TEST_F(KeyMapTest, AMisfitNamesTensorShapesAndTheConfigKey) {
  EXPECT_EQ(
      error(model_with(16), layer("language_model.model.", 15)),
      "language_model.model.layers.0.mlp.down_proj.weight: expected [8, 16] (config.json text_config.intermediate_size "
      "= "
      "16), found bf16[8, 15] in model.safetensors; hint: config.json and the weights belong to different models?");
  EXPECT_EQ(error(model_with(16), layer("language_model.model.", 8)),
            "language_model.model.layers.0.mlp.down_proj.weight: expected [8, 16] (config.json "
            "text_config.intermediate_size = "
            "16), found bf16[8, 8] in model.safetensors; hint: the checkpoint looks tensor-parallel-split (2): merge "
            "its parts "
            "first");
}

TEST_F(KeyMapTest, MissingTensorsAreCountedAndTheNearestNamed) {
  const Weights some = weights({{"language_model.model.layers.0.mlp.down_prj.weight", Dtype::kF32, {8, 16}},
                                {"language_model.model.layers.0.self_attn.q_proj.weight", Dtype::kF32, {8, 8}},
                                {"language_model.model.layers.0.self_attn.k_proj.weight", Dtype::kF32, {4, 8}}});
  EXPECT_EQ(error(model_with(16), some),
            "language_model.model.layers.0.mlp.down_proj.weight: expected in " + dir_.string() +
                ", found no such tensor (2 of 4 needed tensors are missing, 3 are there); hint: the nearest name is "
                "language_model.model.layers.0.mlp.down_prj.weight");
}

TEST_F(KeyMapTest, QuantisedCheckpointsAreNamedAsSuch) {
  const Weights packed = weights({{"language_model.model.layers.0.mlp.down_proj.qweight", Dtype::kI32, {2, 8}}});
  EXPECT_NE(error(model_with(16), packed).find("hint: the checkpoint is quantised"), std::string::npos);
}

TEST_F(KeyMapTest, ATiedHeadThatIsStoredAndDerivedBuffersAreIgnoredAloud) {
  const Model model = model_with(16);
  const Weights more = layer("language_model.model.", 16,
                             {{"language_model.lm_head.weight", Dtype::kBF16, {10, 8}},
                              {"language_model.model.norm2.weight", Dtype::kF32, {8}},
                              {"language_model.model.layers.0.self_attn.rotary_emb.inv_freq", Dtype::kF32, {2}}});
  const Unmatched rest = unmatched(model, more, KeyMap::match(model, more));
  EXPECT_TRUE(rest.extra.empty());
  EXPECT_EQ(rest.derived.size(), 1U);
  ASSERT_EQ(rest.notices.size(), 1U);
  EXPECT_EQ(rest.notices[0],
            "language_model.lm_head.weight bf16[10, 8] is stored but config.json ties the head to the embedding: it is "
            "ignored");
}

TEST_F(KeyMapTest, TensorsThatNoBlockReadsAreRefusedByName) {
  const std::string beyond = "language_model.model.layers.1.mlp.down_proj.weight";
  const Weights more =
      layer("language_model.model.", 16, {{beyond, Dtype::kF32, {8, 16}}, {"stray", Dtype::kF32, {1}}});
  const std::string text = error(model_with(16), more);
  EXPECT_EQ(text.find(beyond + ": found in model.safetensors, expected no such tensor: no block reads it (2 of "), 0U)
      << text;
}

/// q, k and v of a decoder as InternLM2 lays them: for each of two key heads its two queries, itself, its value.
class Attention final : public Block {
 public:
  Attention() : Block("model.layers.0", Component::kLlm, Modality::kText) {
    fused("qkv.weight", {{"model.layers.0.q.weight", {8, 3}},
                         {"model.layers.0.k.weight", {4, 3}},
                         {"model.layers.0.v.weight", {4, 3}}});
  }
  Flow forward(const Params&, const Flow& in, const Context&) const override { return in; }
};

Model interleaved_model() {
  Model model;
  model.family = "test";
  model.add<Attention>();
  model.dialects = {{"published",
                     {{"model.layers.*.q.*", "layers.*.wqkv.*", {.group = 8, .before = 0, .own = 4}},
                      {"model.layers.*.k.*", "layers.*.wqkv.*", {.group = 8, .before = 4, .own = 2}},
                      {"model.layers.*.v.*", "layers.*.wqkv.*", {.group = 8, .before = 6, .own = 2}}}}};
  model.carried = {"tts."};
  return model;
}

TEST_F(KeyMapTest, RowsOfOneStoredTensorAreReadAndWrittenWhereTheyLie) {
  const Model model = interleaved_model();
  const Tensor stored = at::arange(16 * 3, at::kFloat).view({16, 3});
  const Tensor voice = at::arange(5, at::kLong);
  {
    SafetensorsWriter out(dir_, {{"layers.0.wqkv.weight", Dtype::kF32, {16, 3}}, {"tts.codes", Dtype::kI64, {5}}});
    out.write("layers.0.wqkv.weight", stored);
    out.write("tts.codes", voice);
    out.finish();
  }
  const Weights weights = Weights::open(dir_);
  const KeyMap keys = KeyMap::match(model, weights);
  EXPECT_EQ(keys.dialect(), "published");
  EXPECT_EQ(unmatched(model, weights, keys).carried, std::vector<std::string>{"tts.codes"});
  const auto rows = [&](std::initializer_list<int64_t> which) {
    return stored.index_select(0, at::tensor(std::vector<int64_t>(which), at::kLong));
  };
  const auto sources = model.blocks[0]->params()[0].sources;
  EXPECT_TRUE(keys.read(weights, sources[0]).equal(rows({0, 1, 2, 3, 8, 9, 10, 11})));
  EXPECT_TRUE(keys.read(weights, sources[1]).equal(rows({4, 5, 12, 13})));
  EXPECT_TRUE(keys.read(weights, sources[2]).equal(rows({6, 7, 14, 15})));
  const Tensor slice = empty({7}, Dtype::kF32);
  keys.read_flat(weights, sources[1], 4, slice);
  EXPECT_TRUE(slice.equal(rows({4, 5, 12, 13}).reshape({12}).narrow(0, 4, 7)));

  SafetensorsWriter again(dir_, {{"layers.0.wqkv.weight", Dtype::kF32, {16, 3}}}, {.stem = "again"});
  for (const auto& source : sources) write_part(again, keys.on_disk(source.key), keys.read(weights, source));
  again.finish();
  EXPECT_TRUE(Weights::open(dir_ / "again.safetensors").read("layers.0.wqkv.weight").equal(stored));
}

TEST_F(KeyMapTest, AStackedTensorOfAnotherSizeIsNamedWhole) {
  const Weights narrow = weights({{"layers.0.wqkv.weight", Dtype::kBF16, {12, 3}}});
  EXPECT_NE(error(interleaved_model(), narrow).find("layers.0.wqkv.weight: expected [16, 3], found bf16[12, 3]"),
            std::string::npos);
}

TEST_F(KeyMapTest, AFolderThatMixesNamesIsToldSo) {
  Model model = model_with(16);
  model.dialects.push_back({"moved", {{"language_model.model.layers.*.mlp.*", "moved.*.mlp.*"}}});
  const Weights mixed = weights({{"language_model.model.layers.0.self_attn.q_proj.weight", Dtype::kBF16, {8, 8}},
                                 {"language_model.model.layers.0.self_attn.k_proj.weight", Dtype::kBF16, {4, 8}},
                                 {"moved.0.mlp.down_proj.weight", Dtype::kBF16, {8, 16}},
                                 {"model.language_model.embed_tokens.weight", Dtype::kBF16, {10, 8}}});
  const std::string text = error(model, mixed);
  EXPECT_NE(text.find("language_model.model.embed_tokens.weight: expected in"), std::string::npos) << text;
  EXPECT_NE(
      text.find("hint: model.language_model.embed_tokens.weight is there: the folder mixes the names of \"moved\" "
                "and \"in memory\""),
      std::string::npos)
      << text;
}

TEST(ConfigGuessTest, FindsTheKeyThatGaveADimension) {
  const Json config =
      parse_json(R"({"text_config": {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 128}, "vision_config": {"hidden_size": 48, "intermediate_size": 128, "patch_size": 14}})",
                 "test");
  EXPECT_EQ(config_key_of(config, "model.layers.0.mlp.gate_proj.weight", 0, 128),
            "config.json text_config.intermediate_size");
  EXPECT_EQ(config_key_of(config, "model.embed_tokens.weight", 0, 128), "config.json text_config.vocab_size");
  EXPECT_EQ(config_key_of(config, "vision_tower.layers.0.mlp.fc1.weight", 0, 128),
            "config.json vision_config.intermediate_size");
  EXPECT_EQ(config_key_of(config, "vision_tower.patch_embedding.weight", 2, 14),
            "config.json vision_config.patch_size");
  EXPECT_EQ(config_key_of(config, "model.layers.0.self_attn.k_proj.weight", 0, 32),
            "config.json text_config.num_key_value_heads x (hidden_size / num_attention_heads)");
  EXPECT_EQ(config_key_of(config, "model.layers.0.self_attn.q_proj.bias", 0, 64),
            "config.json text_config.num_attention_heads x (hidden_size / num_attention_heads)");
  EXPECT_EQ(config_key_of(config, "model.layers.0.input_layernorm.weight", 0, 63), "");
}

}  // namespace
}  // namespace lockstep
