#include "lockstep/model/stored_head.h"

#include <filesystem>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/model/safetensors_writer.h"
#include "lockstep/model/test_block.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

const Shape kTable{10, 8};

class TiedBlock final : public Block {
 public:
  TiedBlock() : Block("model", Component::kLlm, Modality::kText) {
    param_at("embed", "model.embed_tokens.weight", kTable);
    tied("head", "model.embed_tokens.weight", kTable, "lm_head.weight");
  }
  Flow forward(const Params&, const Flow& in, const Context&) const override { return in; }
};

class StoredHeadTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(dir_);
    model_.add<TiedBlock>();
    model_.dialects = {{"published", {{"model.embed_tokens.*", "tok_embeddings.*"}, {"lm_head.*", "output.*"}}}};
  }
  void TearDown() override { fs::remove_all(dir_); }

  /// Of files with these tensors, all of them zeros but for the last element of the last one.
  std::optional<StoredHead> found(const std::vector<TensorSpec>& specs, float last) const {
    SafetensorsWriter out(dir_, specs);
    for (const auto& spec : specs) {
      const Tensor values = zeros(spec.shape, spec.dtype);
      if (spec.name == specs.back().name) values.view({-1})[values.numel() - 1] = last;
      out.write(spec.name, values);
    }
    out.finish();
    return find_stored_head(model_, Weights::open(dir_));
  }

  fs::path dir_ = fs::path(testing::TempDir()) / "stored_head_test";
  Model model_;
};

TEST_F(StoredHeadTest, EveryElementIsComparedWhateverTheDtypes) {
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF32}) {
    const std::vector<TensorSpec> specs{{"model.embed_tokens.weight", Dtype::kBF16, kTable},
                                        {"lm_head.weight", dtype, kTable}};
    const auto same = found(specs, 0), other = found(specs, 1);
    ASSERT_TRUE(same && other);
    EXPECT_TRUE(same->equal);
    EXPECT_FALSE(other->equal);
    EXPECT_EQ(other->head, "lm_head.weight");
    EXPECT_EQ(other->embedding, "model.embed_tokens.weight");
  }
}

TEST_F(StoredHeadTest, ItIsFoundUnderTheNamesOfAnyWriterAndOnlyWhereBothAreStored) {
  const auto named = found({{"tok_embeddings.weight", Dtype::kF32, kTable}, {"output.weight", Dtype::kF32, kTable}}, 1);
  ASSERT_TRUE(named);
  EXPECT_EQ(named->head, "output.weight");
  EXPECT_FALSE(found({{"model.embed_tokens.weight", Dtype::kF32, kTable}}, 1));
  EXPECT_FALSE(found({{"lm_head.weight", Dtype::kF32, kTable}}, 1));
}

TEST_F(StoredHeadTest, OneOfAnotherShapeIsNotCompared) {
  const auto longer =
      found({{"model.embed_tokens.weight", Dtype::kF32, kTable}, {"lm_head.weight", Dtype::kF32, {12, 8}}}, 0);
  ASSERT_TRUE(longer);
  EXPECT_FALSE(longer->same_shape);
  EXPECT_FALSE(longer->equal);
}

}  // namespace
}  // namespace lockstep
