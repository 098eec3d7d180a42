// What lies in an adapter's folder and is of its base.
#include "lockstep/session/adapter_base.h"

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/tensor/make.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/new_tokens.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

const fs::path kModel = fs::path(LOCKSTEP_FIXTURES) / "oracle" / "seed1" / "qwen2" / "checkpoint";

class AdapterBaseTest : public InTestFolder {
 protected:
  /// The rows that an adapter with these tensors says.
  int64_t rows_of(const std::vector<TensorSpec>& specs) const {
    script("adapter_config.json", R"({"peft_type": "LORA", "target_modules": ["q_proj"]})");
    fs::remove(folder_ / "adapter_model.safetensors");
    SafetensorsWriter writer(folder_, specs,
                             {.max_shard_bytes = std::numeric_limits<int64_t>::max(), .stem = "adapter_model"});
    for (const auto& spec : specs) writer.write(spec.name, zeros(spec.shape, spec.dtype));
    writer.finish();
    return token_rows_of(folder_);
  }
};

TEST_F(AdapterBaseTest, TablesThatAnAdapterHoldsWholeSayTheirRows) {
  const std::string at = "base_model.model.";
  const TensorSpec a{at + "model.layers.0.q_proj.lora_A.weight", Dtype::kF32, {2, 4}},
      of_head{at + "lm_head.lora_B.weight", Dtype::kF32, {9, 2}};
  EXPECT_EQ(rows_of({a, of_head}), 0);
  const TensorSpec table{at + "model.embed_tokens.weight", Dtype::kF32, {7, 4}};
  EXPECT_EQ(rows_of({a, of_head, table}), 7);
  const TensorSpec head{at + "lm_head.base_layer.weight", Dtype::kF32, {7, 4}};
  EXPECT_EQ(rows_of({table, head}), 7);
  const TensorSpec longer{at + "lm_head.weight", Dtype::kF32, {8, 4}};
  EXPECT_EQ(rows_of({table, longer}), 0) << "of two lengths";
  const TensorSpec of_codes{at + "talker.model.embed_tokens.weight", Dtype::kF32, {9, 4}};
  EXPECT_EQ(rows_of({table, of_codes}), 7);
  EXPECT_EQ(token_rows_of(folder_ / "nothing"), 0);
}

TEST_F(AdapterBaseTest, ATokenizerThatKnowsMoreThanTheModelsIsTold) {
  const Tokenizer tokenizer = Tokenizer::load(TokenizerFolder(kModel));
  EXPECT_EQ(unknown_tokens(folder_, kModel, tokenizer), "") << "none is there";
  for (const auto& entry : fs::directory_iterator(kModel)) {
    if (entry.path().extension() != ".safetensors") fs::copy(entry.path(), folder_ / entry.path().filename());
  }
  EXPECT_EQ(unknown_tokens(folder_, kModel, tokenizer), "");
  for (const auto& [name, text] : files_with_tokens(kModel, {"<box>", "</box>"})) {
    fs::remove(folder_ / name);
    script(name, text, /*executable=*/false);
  }
  const std::string told = unknown_tokens(folder_, kModel, tokenizer);
  EXPECT_NE(told.find("has 2 tokens"), std::string::npos) << told;
  EXPECT_NE(told.find("--new_special_tokens <box> </box>"), std::string::npos) << told;
  EXPECT_EQ(unknown_tokens(folder_, kModel, Tokenizer::load(TokenizerFolder(folder_))), "") << "the model knows them";
}

TEST_F(AdapterBaseTest, AChatTemplateThatIsAnotherIsTold) {
  EXPECT_EQ(other_template(folder_, kModel), "") << "none is there";
  script("chat_template.jinja", ChatTemplate::load(kModel).source() + "\n");
  EXPECT_EQ(other_template(folder_, kModel), "");
  script("chat_template.jinja", "{{ messages[0].content }}");
  EXPECT_NE(other_template(folder_, kModel).find("its chat template is another"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
