#include "lockstep/plan/adapter_match.h"

#include <algorithm>
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/test_adapters.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the model of these tests

const Dialect& naming(const Model& model) { return model.dialects.front(); }

/// The tensors of a file as `layout` is written.
std::vector<AdapterTensor> written(const Model& model, const AdapterLayout& layout) {
  std::map<std::string, Shape> all;
  const auto add = [&](const ParamSource& source) {
    const StoredPart part = layout.in_file(source);
    all[part.name] = part.whole_of(source.shape);
  };
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    for (const auto& spec : layout.params_of(model, b)) std::ranges::for_each(spec.sources, add);
    for (const auto& spec : model.blocks[b]->params()) {
      for (ParamSource source : spec.sources) {
        if (spec.tied) source.key = spec.untied_key;
        if (layout.saved.contains(source.key)) add(source);
      }
    }
  }
  std::vector<AdapterTensor> tensors;
  for (const auto& [name, shape] : all) tensors.push_back({"adapter_model.safetensors", {name, Dtype::kF32, shape}});
  return tensors;
}

std::vector<AdapterTensor> renamed(std::vector<AdapterTensor> tensors,
                                   const std::vector<std::pair<std::string, std::string>>& rules) {
  for (auto& tensor : tensors) {
    for (const auto& [from, to] : rules) {
      const size_t at = tensor.spec.name.find(from);
      if (at == std::string::npos) continue;
      tensor.spec.name.replace(at, from.size(), to);
      break;
    }
  }
  return tensors;
}

AdapterMatch matched(const Model& model, const LoraConfig& config, const std::vector<AdapterTensor>& tensors) {
  return match_adapter(model, naming(model), config, tensors, "dir");
}

void expect_same_modules(const AdapterLayout& found, const AdapterLayout& wanted) {
  ASSERT_EQ(found.modules.size(), wanted.modules.size());
  for (size_t i = 0; i < found.modules.size(); ++i) {
    EXPECT_EQ(found.modules[i].module.name, wanted.modules[i].module.name);
    EXPECT_EQ(found.modules[i].module.first_row, wanted.modules[i].module.first_row);
    EXPECT_EQ(found.modules[i].rank, wanted.modules[i].rank);
    EXPECT_DOUBLE_EQ(found.modules[i].scale, wanted.modules[i].scale);
  }
  EXPECT_EQ(found.saved, wanted.saved);
  EXPECT_EQ(found.unties, wanted.unties);
}

LoraConfig text_config() {
  LoraConfig config = targets({"q_proj", "v_proj", "down_proj", "lm_head", "embed_tokens"});
  config.rank_pattern = {{"v_proj", 3}};
  return config;
}

TEST(AdapterMatch, EveryTensorOfAFileFindsItsModuleAgain) {
  for (const bool tied : {false, true}) {
    for (const bool dora : {false, true}) {
      const Model model = adapted_model(tied);
      LoraConfig config = targets({"all-linear", "patch_embed.proj", "embed_tokens"});
      config.dora = dora;
      config.bias = "all";
      config.modules_to_save = {"language_model.norm"};
      const AdapterLayout layout = chosen(model, config);
      const auto tensors = written(model, layout);
      const AdapterMatch match = matched(model, config, tensors);
      EXPECT_EQ(match.shape, "in memory");
      EXPECT_TRUE(match.idle.empty());
      expect_same_modules(match.layout, layout);
      // Each tensor that is computed with has its place in the file, and each of the file is some tensor's.
      std::set<std::string> used;
      for (const auto& [key, part] : match.where) used.insert(part.name);
      EXPECT_EQ(used.size(), tensors.size());
      for (size_t b = 0; b < model.blocks.size(); ++b) {
        for (const auto& spec : layout.params_of(model, b)) {
          for (const auto& source : spec.sources) {
            ASSERT_TRUE(match.where.contains(source.key)) << source.key;
            EXPECT_EQ(match.where.at(source.key).name, layout.in_file(source).name);
            EXPECT_EQ(match.where.at(source.key).rows, layout.in_file(source).rows);
          }
        }
      }
    }
  }
}

TEST(AdapterMatch, NamesOfReleasedFilesFindTheSameModules) {
  const Model model = adapted_model();
  const LoraConfig config = text_config();
  const AdapterLayout layout = chosen(model, config);
  const auto old = renamed(written(model, layout), {{"model.language_model.", "model."}});
  const AdapterMatch match = matched(model, config, old);
  EXPECT_EQ(match.shape, "released");
  expect_same_modules(match.layout, layout);
  EXPECT_EQ(match.where.at("model.layers.0.self_attn.v_proj.lora_B.weight").name,
            "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight");
  EXPECT_EQ(match.layout.modules.front().module.name, "model.language_model.embed_tokens") << "as it is written again";
}

/// A model whose released files call the language model otherwise, as the first LLaVA of transformers did.
Model model_with_deep_text() {
  Model model{.family = "deep"};
  add_open(model, "language_model.model.embed_tokens", Component::kLlm, {"input_ids"}, {"hidden"})
      .lookup_table("weight", {11, 4});
  auto& tower = add_open(model, "tower", Component::kVision, {"pixel_values"}, {"media"});
  tower.param("q_proj.weight", {6, 6});
  auto& layer = add_open(model, "language_model.model.layers.0", Component::kLlm, {"hidden"}, {"hidden"});
  layer.fuse("qk", {{"q_proj.weight", {8, 4}}, {"k_proj.weight", {4, 4}}});
  add_open(model, "language_model.lm_head", Component::kLlm, {"hidden", "labels"}, {"loss"}).param("weight", {11, 4});
  model.dialects = {{"in memory",
                     {{"language_model.model.*", "model.language_model.*"},
                      {"language_model.lm_head.*", "lm_head.*"},
                      {"tower.*", "model.tower.*"}}}};
  return model;
}

/// peft's save_embedding_layers, which it does by itself where the vocabulary has grown.
TEST(AdapterMatch, TablesThatNobodyTrainsAreReadAndCarried) {
  const Model model = adapted_model();
  const LoraConfig config = targets({"q_proj"});
  auto tensors = written(model, chosen(model, config));
  const std::string table = "base_model.model.model.language_model.embed_tokens.weight";
  tensors.push_back({"adapter_model.safetensors", {table, Dtype::kF32, {11, 4}}});
  const AdapterMatch match = matched(model, config, tensors);
  EXPECT_TRUE(match.layout.saved.empty());
  EXPECT_EQ(match.frozen, (std::vector<CarriedTensor>{{table, table}}));
  EXPECT_EQ(match.where.at("model.embed_tokens.weight").name, table);
  tensors.back().file = "non_lora_trainables.bin";
  EXPECT_TRUE(matched(model, config, tensors).layout.saved.contains("model.embed_tokens.weight")) << "beside it";
}

/// Names of the released files, or of the text model alone, are not those that are written: peft, and a run that goes on, would
/// choose other modules by them, or give them other ranks and scales.
TEST(AdapterMatch, WordsOfTheConfigMeanTheSameModulesUnderTheNamesThatAreWritten) {
  const Model model = model_with_deep_text();
  LoraConfig config = targets({"q_proj", "k_proj"});
  config.exclude.names = {"tower.q_proj"};
  config.rank_pattern = {{"model.language_model.layers.0.q_proj", 3}};
  config.alpha_pattern = {{"model.language_model.layers.0.k_proj", 5}};
  config.modules_to_save = {"lm_head"};
  const AdapterLayout layout = chosen(model, config);
  const std::vector<std::pair<std::string, std::string>> to_text{{"model.language_model.", "model."}},
      to_released{{"model.model.language_model.", "model.language_model.model."},
                  {"model.lm_head.", "model.language_model.lm_head."}};
  for (const bool text : {true, false}) {
    const std::string stem = text ? "model" : "language_model.model";
    LoraConfig old = config;
    old.exclude = {};
    old.targets = {.names = {}, .regex = "^(" + stem + "(?=\\.).*\\.(q_proj|k_proj))$"};
    old.rank_pattern = {{stem + ".layers.0.q_proj", 3}};
    old.alpha_pattern = {{stem + ".layers.0.k_proj", 5}};
    old.modules_to_save = {text ? "lm_head" : "language_model.lm_head"};
    const AdapterMatch match = matched(model, old, renamed(written(model, layout), text ? to_text : to_released));
    ASSERT_EQ(match.shape, text ? "text only" : "released");
    EXPECT_EQ(match.config.targets, old.targets) << "as the files say it";
    expect_same_modules(match.layout, layout);
    const AdapterMatch again = matched(model, match.layout.config, written(model, match.layout));
    EXPECT_EQ(again.shape, "in memory");
    expect_same_modules(again.layout, layout);
    const AdapterLayout by_words = chosen(model, match.layout.config);
    expect_same_modules(by_words, layout);
  }
}

TEST(AdapterMatch, AnAdapterOfTheTextModelAloneFindsItsModules) {
  const Model model = model_with_deep_text();
  LoraConfig config = targets({"q_proj", "lm_head"});
  config.exclude.names = {"tower.q_proj"};
  const AdapterLayout layout = chosen(model, config);
  ASSERT_EQ(layout.modules.size(), 2u);
  const auto tensors = renamed(written(model, layout), {{"model.language_model.", "model."}});
  const AdapterMatch match = matched(model, config, tensors);
  EXPECT_EQ(match.shape, "text only");
  expect_same_modules(match.layout, layout);
  const auto old = renamed(written(model, layout), {{"model.model.language_model.", "model.language_model.model."},
                                                    {"model.lm_head.", "model.language_model.lm_head."}});
  EXPECT_EQ(matched(model, config, old).shape, "released");
}

TEST(AdapterMatch, AnAdapterOfTheModelWithoutItsHeadFindsItsModules) {
  const Model model = model_with_deep_text();
  const LoraConfig config = targets({"q_proj"});
  const AdapterLayout layout = chosen(model, config);
  ASSERT_EQ(layout.modules.size(), 2u);
  const AdapterMatch match =
      matched(model, config, renamed(written(model, layout), {{"base_model.model.model.", "base_model.model."}}));
  EXPECT_EQ(match.shape, "in memory, without its head");
  expect_same_modules(match.layout, layout);
  EXPECT_EQ(match.where.at("language_model.model.layers.0.q_proj.lora_A.weight").name,
            "base_model.model.language_model.layers.0.q_proj.lora_A.weight");
}

TEST(AdapterMatch, OtherWritersEndingsAreTheSameTensors) {
  const Model model = adapted_model();
  LoraConfig config = targets({"o_proj"});
  config.dora = true;
  config.modules_to_save = {"linear_1"};
  const AdapterLayout layout = chosen(model, config);
  const auto plain = written(model, layout);
  for (const auto& rules : std::vector<std::vector<std::pair<std::string, std::string>>>{
           {{"lora_magnitude_vector", "lora_magnitude_vector.weight"}},
           {{"linear_1.", "linear_1.modules_to_save."}},
           {{"linear_1.", "linear_1.modules_to_save.default."}},
           {{"lora_A.weight", "lora_A.default.weight"}, {"lora_B.weight", "lora_B.default.weight"}},
           {{"base_model.model.", ""}}}) {
    expect_same_modules(matched(model, config, renamed(plain, rules)).layout, layout);
  }
  auto with_copy = renamed(plain, {{"linear_1.", "linear_1.modules_to_save."}});
  for (const auto& tensor : renamed(plain, {{"linear_1.", "linear_1.original_module."}})) {
    if (tensor.spec.name.find("original_module") != std::string::npos) with_copy.push_back(tensor);
  }
  expect_same_modules(matched(model, config, with_copy).layout, layout);
}

using Change = std::function<void(LoraConfig&, std::vector<AdapterTensor>&)>;

void expect_refusal(const LoraConfig& config, const Change& change, const std::vector<std::string>& words) {
  const Model model = adapted_model();
  auto tensors = written(model, chosen(model, config));
  LoraConfig changed = config;
  change(changed, tensors);
  try {
    matched(model, changed, tensors);
    ADD_FAILURE() << "it was taken; expected " << words.front();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("dir"), std::string::npos) << error.what();
    for (const auto& word : words) EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

AdapterTensor& tensor_ending(std::vector<AdapterTensor>& tensors, const std::string& ending) {
  for (auto& tensor : tensors) {
    if (tensor.spec.name.ends_with(ending)) return tensor;
  }
  throw std::out_of_range(ending);
}

TEST(AdapterMatch, ATensorWithoutAModuleIsRefusedByBothNames) {
  expect_refusal(targets({"q_proj"}),
                 [](auto&, auto& tensors) {
                   tensor_ending(tensors, "0.self_attn.q_proj.lora_A.weight").spec.name =
                       "base_model.model.model.language_model.layers.0.self_attn.q_prj.lora_A.weight";
                 },
                 {"adapter_model.safetensors", "q_prj.lora_A.weight", "(1 of 4 tensors find none)",
                  "the nearest is model.language_model.layers.0.self_attn.q_proj", "fake"});
  expect_refusal(targets({"q_proj"}), [](auto&, auto& tensors) { tensors.clear(); }, {"found none"});
}

TEST(AdapterMatch, HalfOfAPairIsRefused) {
  for (const auto& [gone, alone] :
       std::vector<std::pair<const char*, const char*>>{{"0.self_attn.q_proj.lora_B.weight", "found lora_A alone"},
                                                        {"0.self_attn.q_proj.lora_A.weight", "found lora_B alone"}}) {
    expect_refusal(targets({"q_proj"}),
                   [&](auto&, auto& tensors) {
                     std::erase_if(tensors, [&](const auto& tensor) { return tensor.spec.name.ends_with(gone); });
                   },
                   {"layers.0.self_attn.q_proj", alone, "cut"});
  }
}

TEST(AdapterMatch, ShapesAndRanksThatDisagreeAreRefusedWithBoth) {
  const auto reshape = [](const char* ending, Shape shape) {
    return [=](LoraConfig&, std::vector<AdapterTensor>& tensors) { tensor_ending(tensors, ending).spec.shape = shape; };
  };
  expect_refusal(targets({"q_proj"}), reshape("0.self_attn.q_proj.lora_B.weight", {8, 3}), {"rank 2", "lora_B"});
  expect_refusal(targets({"q_proj"}), reshape("0.self_attn.q_proj.lora_B.weight", {16}), {"rank 2", "lora_B"});
  expect_refusal(targets({"q_proj"}), reshape("0.self_attn.q_proj.lora_A.weight", {2, 5}),
                 {"lora_A", "another base model", "[2, 4]"});
  expect_refusal(targets({"q_proj"}), reshape("0.self_attn.q_proj.lora_B.weight", {9, 2}), {"lora_B", "[8, 2]"});
  expect_refusal(targets({"q_proj"}), reshape("0.self_attn.q_proj.lora_A.weight", {}), {"lora_A"});
  expect_refusal(targets({"q_proj"}), [](LoraConfig& config, auto&) { config.r = 4; },
                 {"expected rank 4", "found 2", "adapter_config.json"});
  expect_refusal(targets({"q_proj"}),
                 [](LoraConfig& config, auto&) {
                   config.rank_pattern = {{"1.self_attn.q_proj", 6}};
                 },
                 {"layers.1.self_attn.q_proj", "expected rank 6", "found 2"});
  LoraConfig saved = targets({"q_proj"});
  saved.modules_to_save = {"linear_1"};
  expect_refusal(saved, reshape("linear_1.weight", {4, 7}), {"linear_1.weight", "[4, 6]"});
}

TEST(AdapterMatch, AConfigThatSaysOtherThanTheFilesIsRefused) {
  expect_refusal(targets({"q_proj"}), [](LoraConfig& config, auto&) { config.dora = true; },
                 {"use_dora true", "neither"});
  expect_refusal(targets({"q_proj"}), [](LoraConfig& config, auto&) { config.lora_bias = true; }, {"lora_bias true"});
  LoraConfig dora = targets({"q_proj"});
  dora.dora = true;
  expect_refusal(dora, [](LoraConfig& config, auto&) { config.dora = false; },
                 {"use_dora false", "a magnitude vector"});
}

TEST(AdapterMatch, WordsThatLeaveOutWhatTheFilesAdaptAreRefused) {
  expect_refusal(targets({"q_proj", "o_proj"}), [](LoraConfig& config, auto&) { config.targets.names = {"q_proj"}; },
                 {"to choose", "o_proj, which the files adapt"});
  expect_refusal(targets({"q_proj"}), [](LoraConfig& config, auto&) { config.exclude.names = {"q_proj"}; },
                 {"to choose"});
  expect_refusal(targets({"q_proj"}), [](LoraConfig& config, auto&) { config.layers = {1}; },
                 {"layers.0", "to choose"});
  expect_refusal(targets({"q_proj"}), [](LoraConfig& config, auto&) { config.modules_to_save = {"linear_1"}; },
                 {"modules_to_save: expected tensors of \"linear_1\", found none"});
}

TEST(AdapterMatch, TheSamePartTwiceIsRefused) {
  expect_refusal(targets({"q_proj"}),
                 [](auto&, auto& tensors) {
                   AdapterTensor twin = tensor_ending(tensors, "0.self_attn.q_proj.lora_A.weight");
                   twin.spec.name = twin.spec.name.substr(std::string("base_model.model.").size());
                   tensors.push_back(twin);
                 },
                 {"are the same part of"});
}

TEST(AdapterMatch, TensorsOfModulesThatNothingIsComputedWithAreCarried) {
  const Model model = adapted_model();
  const LoraConfig config = targets({"q_proj"});
  auto tensors = written(model, chosen(model, config));
  const std::string idle = "base_model.model.model.visual.blocks.1.attn.proj.lora_";
  tensors.push_back({"adapter_model.safetensors", {idle + "A.weight", Dtype::kF32, {2, 6}}});
  tensors.push_back({"adapter_model.safetensors", {idle + "B.weight", Dtype::kF32, {6, 2}}});
  const AdapterMatch match = matched(model, config, tensors);
  EXPECT_EQ(match.idle, (std::vector<CarriedTensor>{{idle + "A.weight", idle + "A.weight"},
                                                    {idle + "B.weight", idle + "B.weight"}}));
  EXPECT_EQ(match.layout.modules.size(), 2u);
}

TEST(AdapterMatch, ATiedHeadThatIsTrainedWholeIsUntied) {
  const Model model = adapted_model(/*tied=*/true);
  for (const char* name : {"lm_head", "embed_tokens"}) {
    LoraConfig config = targets({"q_proj"});
    config.modules_to_save = {name};
    const AdapterMatch match = matched(model, config, written(model, chosen(model, config)));
    EXPECT_TRUE(match.layout.unties) << name;
  }
  // peft keeps a copy of a table that it adapts, which is not trained.
  const LoraConfig config = targets({"embed_tokens"});
  auto tensors = written(model, chosen(model, config));
  tensors.push_back({"adapter_model.safetensors",
                     {"base_model.model.model.language_model.embed_tokens.base_layer.weight", Dtype::kF32, {11, 4}}});
  const AdapterMatch match = matched(model, config, tensors);
  EXPECT_FALSE(match.layout.unties);
  EXPECT_TRUE(match.layout.saved.empty());
}

}  // namespace
}  // namespace lockstep
