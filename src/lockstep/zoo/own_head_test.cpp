// Folders whose config.json ties the head, and whose files hold another one.
#include "lockstep/zoo/own_head.h"

#include <array>
#include <filesystem>
#include <span>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/safetensors_writer.h"
#include "lockstep/tensor/make.h"
#include "lockstep/zoo/straight_run.h"
#include "lockstep/zoo/test_family.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

enum class Head { kNone, kSame, kFlipped };  // flipped: the embedding's rows in reverse order

class OwnHeadTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override { fs::remove_all(dir_); }

  /// A folder of these weights and this config, with `head` made of `embedding`.
  HfConfig opened(const fs::path& from, const Json& config, const std::string& embedding, const std::string& head,
                  Head kind) const {
    write_json(dir_ / "config.json", config);
    const Weights weights = Weights::open(from);
    std::vector<TensorSpec> specs = weights.specs();
    const Tensor table = weights.read(embedding);
    if (kind != Head::kNone) specs.push_back({head, dtype_of(table), shape_of(table)});
    SafetensorsWriter out(dir_, specs);
    for (const auto& spec : specs) {
      if (spec.name != head) out.write(spec.name, weights.read(spec.name));
    }
    if (kind != Head::kNone) out.write(head, kind == Head::kSame ? table : table.flip({0}).contiguous());
    out.finish();
    return load_config(dir_);
  }
  HfConfig internvl(const Json& root, bool text, Head kind) const {
    Json config = odd_config("internvl");
    config["tie_word_embeddings"] = root;
    config["text_config"]["tie_word_embeddings"] = text;
    if (root.is_null()) config.erase("tie_word_embeddings");
    return opened(odd_folder("internvl") / "checkpoint", config, "language_model.model.embed_tokens.weight",
                  "language_model.lm_head.weight", kind);
  }
  /// Of the last of four tokens.
  static Tensor logits_of(const HfConfig& config) {
    const Model model = family_of(config).build(config);
    const Weights weights = Weights::open(config.folder());
    const at::NoGradGuard quiet;
    const StraightRun run(model, weights, KeyMap::match(model, weights), Dtype::kF32);
    static constexpr std::array<int64_t, 4> kTokens{5, 6, 7, 8};
    const Flow in{{"input_ids", from_values(std::span<const int64_t>(kTokens), {1, 4})}};
    return run.forward(in, {.logits = LogitsWanted::kLast})["logits"].reshape({-1});
  }

  fs::path dir_ = fs::path(testing::TempDir()) / "own_head_test";
};

// Expected: transformers 5.23 on the same files (AutoModelForImageTextToText, float32).
TEST_F(OwnHeadTest, OneThatDiffersCountsAndOneThatIsEqualStaysTied) {
  for (const auto& [root, text] : {std::pair<Json, bool>{true, false}, {true, true}, {Json(), true}}) {
    const Tensor same = logits_of(internvl(root, text, Head::kSame));
    EXPECT_EQ(same.argmax().item<int64_t>(), 118);
    EXPECT_NEAR(same[1].item<float>(), 0.3868370F, 1e-4);
    EXPECT_TRUE(same.equal(logits_of(internvl(root, text, Head::kNone))));
    const HfConfig untied = internvl(root, text, Head::kFlipped);
    const Tensor own = logits_of(untied);
    EXPECT_EQ(own.argmax().item<int64_t>(), 265);
    EXPECT_NEAR(own[1].item<float>(), 9.4176455F, 1e-4);
    EXPECT_LT(own.sub(same.flip({0})).abs().max().item<float>(), 1e-4F);
    ASSERT_EQ(untied.notices().size(), 1U);
    EXPECT_EQ(untied.notices()[0].find("language_model.lm_head.weight is stored and differs from "
                                       "language_model.model.embed_tokens.weight, to which config.json ties it"),
              0U)
        << untied.notices()[0];
  }
}

/// What is saved opens the same with transformers 4, which asks the text's config, and with transformers 5, which asks the model's.
TEST_F(OwnHeadTest, TheConfigSaysSoWhereverAReaderLooks) {
  const HfConfig own = internvl(true, true, Head::kFlipped);
  EXPECT_TRUE(own.differs_from_file());
  EXPECT_EQ(own.json()["tie_word_embeddings"], false);
  EXPECT_EQ(own.json()["text_config"]["tie_word_embeddings"], false);
  for (const Head kind : {Head::kNone, Head::kSame}) {
    const HfConfig tied = internvl(true, true, kind);
    EXPECT_FALSE(tied.differs_from_file());
    EXPECT_TRUE(tied.notices().empty());
  }
  write_json(dir_ / "config.json", own.json());
  const HfConfig again = load_config(dir_);
  EXPECT_FALSE(again.differs_from_file());
  EXPECT_TRUE(again.notices().empty());
}

TEST_F(OwnHeadTest, AnOmniWhoseThinkerHasNoKeyIsAskedToo) {
  Json config = odd_config("qwen2_5_omni");
  config["thinker_config"].erase("tie_word_embeddings");
  const fs::path from = odd_folder("qwen2_5_omni") / "checkpoint";
  const HfConfig own =
      opened(from, config, "thinker.model.embed_tokens.weight", "thinker.lm_head.weight", Head::kFlipped);
  EXPECT_EQ(own.json()["thinker_config"]["tie_word_embeddings"], false);
  EXPECT_EQ(own.json()["thinker_config"]["text_config"]["tie_word_embeddings"], false);
  const Model model = family_of(own).build(own);
  const Weights weights = Weights::open(own.folder());
  EXPECT_TRUE(unmatched(model, weights, KeyMap::match(model, weights)).notices.empty());
  EXPECT_TRUE(opened(from, config, "thinker.model.embed_tokens.weight", "thinker.lm_head.weight", Head::kSame)
                  .notices()
                  .empty());
}

TEST_F(OwnHeadTest, AConfigWithoutWeightsIsReadAsItIs) {
  write_json(dir_ / "config.json", odd_config("internvl"));
  EXPECT_FALSE(load_config(dir_).differs_from_file());
}

}  // namespace
}  // namespace lockstep
