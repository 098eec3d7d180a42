// LLaVA as its authors publish it: where its tower stands, what its config may not say, how its rows are written.
#include "lockstep/zoo/llava.h"

#include <algorithm>
#include <filesystem>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/model/key_map.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/tensor/make.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/registry.h"
#include "lockstep/zoo/test_family.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

fs::path oracle() { return odd_folder("llava"); }

/// A copy of the recorded folders whose files a test may change.
class OriginalLlava : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
    for (const char* part : {"checkpoint_original", "vision_tower"}) {
      fs::copy(oracle() / part, root_ / part, fs::copy_options::recursive);
      for (const auto& file : fs::directory_iterator(root_ / part))
        fs::permissions(file.path(), fs::perms::owner_write, fs::perm_options::add);
    }
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path model() const { return root_ / "checkpoint_original"; }
  fs::path tower() const { return root_ / "vision_tower"; }
  static void change(const fs::path& file, const std::string& pointer, const Json& value) {
    Json json = read_json(file);
    json[Json::json_pointer(pointer)] = value;
    write_json(file, json);
  }
  void say(const std::string& key, const Json& value) const { change(model() / "config.json", "/" + key, value); }

  /// What opening the folder says, all of it: model, weights, processor.
  std::string refusal(const fs::path& asked = {}) const {
    return refusal_of([place = ModelPlace(model(), asked)] {
      const HfConfig config = HfConfig::load(place);
      const Family& family = family_of(config);
      (void)KeyMap::match(family.build(config), open_weights(family, config));
      (void)family.processor(place);
    });
  }
  void expect_refused(const std::vector<std::string>& parts, const fs::path& asked = {}) const {
    const std::string text = refusal(asked);
    for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    EXPECT_LT(text.size(), 2000U);
  }
  Features prompt(const std::vector<Message>& messages, const std::vector<std::string>& images = {}) const {
    Sample sample{.messages = messages};
    for (const auto& name : images) sample.images.push_back((oracle() / "media" / name).string());
    sample.where = "row 1";
    return llava::load_published_processor(ModelPlace(model()))->prompt_features(sample, {});
  }
  fs::path root_;
};

TEST_F(OriginalLlava, OpensWithItsTowerBesideIt) {
  EXPECT_EQ(refusal(), "");
  const HfConfig config = HfConfig::load(model());
  const Family& family = family_of(config);
  const Weights weights = open_weights(family, config);
  const Model built = family.build(config);
  EXPECT_TRUE(built.answers_from_embeddings);
  const KeyMap keys = KeyMap::match(built, weights);
  EXPECT_EQ(keys.dialect(), "LLaVA's authors");
  EXPECT_TRUE(weights.borrows());
  const std::string patch = "model.vision_tower.vision_tower.vision_model.embeddings.patch_embedding.weight";
  EXPECT_TRUE(weights.is_borrowed(patch));
  EXPECT_FALSE(weights.is_borrowed("model.mm_projector.0.weight"));
  EXPECT_EQ(fs::path(weights.file_of(patch)), tower() / "pytorch_model.bin");
  EXPECT_EQ(weights.find("model.vision_tower.vision_tower.text_model.final_layer_norm.weight"), nullptr);
  const Weights theirs = Weights::open(oracle() / "checkpoint");
  EXPECT_TRUE(weights.read(patch).equal(theirs.read("vision_tower.vision_model.embeddings.patch_embedding.weight")));
  EXPECT_TRUE(weights.read("model.mm_projector.2.bias").equal(theirs.read("multi_modal_projector.linear_2.bias")));
}

TEST_F(OriginalLlava, PlainRowsAreAPictureAndItsCaption) {
  const ModelPlace place(model(), tower(), {.conversation = "plain"});
  Sample sample{.messages = {{.role = "user", .content = "Say what it is.\n<image>"},
                             {.role = "assistant", .content = "A field."}}};
  sample.images = {(oracle() / "media" / "square.png").string()};
  const auto processor = llava::load_published_processor(place);
  const Features row = processor->train_features(sample, {});
  // A begin token, the picture, and the caption with a line's end, read by itself as the authors' tokenizer_image_token does.
  const auto caption = Tokenizer::load(model()).encode("A field.\n");
  ASSERT_EQ(row.input_ids.size(), 1 + 26 + caption.size());
  EXPECT_EQ(row.input_ids[0], 1);
  EXPECT_TRUE(std::equal(caption.begin(), caption.end(), row.input_ids.begin() + 27));
  EXPECT_TRUE(std::equal(caption.begin(), caption.end(), row.labels.begin() + 27));
  EXPECT_TRUE(std::all_of(row.labels.begin(), row.labels.begin() + 27, [](int32_t label) { return label == -100; }));
  sample.messages.push_back({.role = "user", .content = "And?"});
  const std::string said = refusal_of([&] { (void)processor->train_features(sample, {}); }, ExitCode::kData);
  EXPECT_NE(said.find("expected a question with one <image> and its answer"), std::string::npos) << said;
}

TEST_F(OriginalLlava, AFolderNamedLlama2IsToldWhoseConversationIsTaken) {
  EXPECT_TRUE(load_config(ModelPlace(model(), tower())).notices().empty());
  const fs::path named = root_ / "llava-Llama-2-7b-chat";
  fs::create_directories(named);
  fs::copy_file(model() / "config.json", named / "config.json");
  for (const fs::path& folder : {named, named / ""}) {
    const HfConfig config = load_config(ModelPlace(folder, tower()));
    ASSERT_EQ(config.notices().size(), 1U);
    EXPECT_NE(config.notices()[0].find("written as Vicuna's here"), std::string::npos) << config.notices()[0];
    EXPECT_FALSE(config.differs_from_file());
  }
  write_text(named / "chat_template.jinja", "{{ messages }}");
  EXPECT_TRUE(load_config(ModelPlace(named, tower())).notices().empty());
}

TEST_F(OriginalLlava, AProjectorThatStandsNowhereIsMadeAlikeOnEveryRank) {
  // Of a language model: the folder without what joins it to a tower.
  const fs::path language = root_ / "language";
  fs::create_directories(language);
  Json config = read_json(model() / "config.json");
  config["architectures"] = {"LlamaForCausalLM"};
  config["model_type"] = "llama";
  config.erase("mm_vision_tower");
  write_json(language / "config.json", config);
  {
    const Weights whole = Weights::open(model());
    std::vector<TensorSpec> specs;
    for (const auto& spec : whole.specs()) {
      if (!spec.name.starts_with("model.mm_projector.")) specs.push_back(spec);
    }
    SafetensorsWriter out(language, specs, {});
    for (const auto& spec : specs) out.write(spec.name, whole.read(spec.name));
    out.finish();
  }
  const ModelPlace place(language, tower(), {.projector_type = "mlp2x_gelu", .select_feature = "cls_patch", .seed = 3});
  const HfConfig joined = load_config(place);
  const Family& family = family_of(joined);
  EXPECT_EQ(family.name, "llava");
  const Weights weights = open_weights(family, joined);
  (void)KeyMap::match(family.build(joined), weights);
  const std::string name = "model.mm_projector.0.weight";
  const Tensor all = weights.read(name);
  EXPECT_LE(all.abs().max().item<float>(), 1.0F / 6);
  EXPECT_GT(all.abs().max().item<float>(), 0.9F / 6);
  EXPECT_FALSE(weights.is_borrowed(name));
  const Tensor some = empty({100}, Dtype::kF32);
  weights.read_flat(name, 50, some);
  EXPECT_TRUE(some.equal(all.flatten().narrow(0, 50, 100)));
  // Without a tower it is the language model that its config names, and words about a tower are refused.
  EXPECT_EQ(family_of(load_config({language})).name, "llama");
  const std::string said = refusal_of(
      [&] {
        (void)load_config({language, {}, {.projector_type = "linear"}});
      },
      ExitCode::kUsage);
  EXPECT_NE(said.find("or name a --vision_tower"), std::string::npos) << said;
  // A published folder that lacks its projector is damaged: none is made for it.
  config["architectures"] = {"LlavaLlamaForCausalLM"};
  config["mm_vision_tower"] = tower().string();
  write_json(language / "config.json", config);
  const HfConfig damaged = load_config({language, tower(), {.aspect_ratio = "square"}});
  EXPECT_EQ(open_weights(family_of(damaged), damaged).find(name), nullptr);
}

TEST_F(OriginalLlava, ItsTowerIsFoundByEveryWayOfNamingIt) {
  say("mm_vision_tower", tower().string());
  EXPECT_EQ(refusal(), "");
  say("mm_vision_tower", "openai/clip-vit-large-patch14-336");
  expect_refused({"config.json: mm_vision_tower: expected the folder", "found \"openai/clip-vit-large-patch14-336\"",
                  "not there", "download \"openai/clip-vit-large-patch14-336\"", "--vision_tower DIR"});
  EXPECT_EQ(refusal(tower()), "");
  fs::create_directories(model() / "openai");
  fs::rename(tower(), model() / "openai" / "clip-vit-large-patch14-336");
  EXPECT_EQ(refusal(), "");
  expect_refused({"--vision_tower", "expected the folder of a CLIP tower, found no such folder"}, tower());
  expect_refused({"--vision_tower", "found a file"}, model() / "config.json");
}

TEST_F(OriginalLlava, NamesOfTowersThatAreNoneEndInASentence) {
  for (const Json& name :
       {Json("."), Json(".."), Json("/"), Json(std::string("\0a", 2)), Json("a\nb"), Json(std::string(1 << 20, 'x')),
        Json(""), Json(nullptr), Json("/dev/null"), Json("config.json")}) {
    say("mm_vision_tower", name);
    EXPECT_NE(refusal().find("expected"), std::string::npos) << name.dump().substr(0, 40);
    EXPECT_LT(refusal().size(), 2000U);
  }
  say("mm_vision_tower", 7);
  expect_refused({"\"mm_vision_tower\": expected a string, found 7"});
}

TEST_F(OriginalLlava, ATowerOfAnotherKindOrSizeIsRefusedByKey) {
  const fs::path config = tower() / "config.json";
  change(config, "/vision_config/hidden_size", 48);
  expect_refused({"mm_hidden_size: the projector expects a tower whose hidden_size is 36, found 48",
                  (tower() / "config.json").string() + " vision_config"});
  change(config, "/vision_config/hidden_size", 36);
  change(config, "/vision_config/patch_size", 4);
  expect_refused({"patch_embedding.weight: expected [36, 3, 4, 4]", "found", "[36, 3, 8, 8]"});
  change(config, "/vision_config/patch_size", 8);
  change(config, "/vision_config/image_size", 48);
  expect_refused({"position_embedding.weight: expected [37, 36]", "[26, 36]"});
  change(config, "/vision_config/image_size", 40);
  change(tower() / "preprocessor_config.json", "/crop_size", 48);
  expect_refused({"preprocessor_config.json: crop_size: expected 40 x 40", "found 48 x 48"});
  fs::remove(tower() / "preprocessor_config.json");
  expect_refused({"preprocessor_config.json"});
  change(config, "/model_type", "siglip");
  expect_refused({"model_type: expected clip_vision_model, or clip with a vision_config, found \"siglip\""});
  fs::remove(config);
  expect_refused({(tower() / "config.json").string()});
}

TEST_F(OriginalLlava, WhatWouldChangeTheNumbersIsRefusedByKey) {
  const std::pair<const char*, Json> cases[] = {{"mm_projector_type", "resampler"},
                                                {"mm_projector_type", "mlp3x_gelu"},
                                                {"mm_projector_type", std::string(1 << 16, 'x')},
                                                {"mm_use_im_start_end", true},
                                                {"mm_resampler_type", "perceiver"},
                                                {"mm_patch_merge_type", "spatial_unpad"},
                                                {"image_aspect_ratio", "anyres"},
                                                {"image_aspect_ratio", "anyres_max_9"},
                                                {"mm_vision_select_layer", 5},
                                                {"mm_vision_select_layer", Json::array({-1, -2})},
                                                {"mm_vision_select_feature", "cls"},
                                                {"mm_hidden_size", 0}};
  const Json before = read_json(model() / "config.json");
  for (const auto& [key, value] : cases) {
    say(key, value);
    expect_refused({std::string(key), "expected"});
    write_json(model() / "config.json", before);
  }
}

TEST_F(OriginalLlava, AnotherProjectorThanTheConfigSaysIsNamed) {
  say("mm_projector_type", "linear");
  expect_refused({"model.mm_projector.weight: expected in", "found no such tensor"});
  say("mm_projector_type", "mlp1x_gelu");
  expect_refused({"model.mm_projector.2", "no block reads it"});
  const HfConfig config = HfConfig::load(model());
  const Model single = family_of(config).build(config);
  const auto projector =
      std::ranges::find(single.blocks, "multi_modal_projector", [](const auto& b) { return b->name(); });
  EXPECT_EQ((*projector)->params().size(), 2U);
}

TEST_F(OriginalLlava, NamesOfBothWritersInOneFolderAreTold) {
  const Weights weights = Weights::open(model());
  const std::string theirs = "model.norm.weight", ours = "language_model.model.norm.weight";
  std::vector<TensorSpec> specs = weights.specs();
  for (auto& spec : specs) spec.name = spec.name == theirs ? ours : spec.name;
  SafetensorsWriter writer(model(), specs);  // safetensors come first where a folder has both
  for (const auto& spec : specs) writer.write(spec.name, weights.read(spec.name == ours ? theirs : spec.name));
  writer.finish();
  expect_refused({"model.norm.weight: expected in", ours + " is there",
                  "the folder mixes the names of \"LLaVA's authors\" and \"released\""});
}

TEST_F(OriginalLlava, AModelOfOneFolderTakesNoTower) {
  const std::string said = refusal_of(
      [&] {
        (void)family_of(HfConfig::load({oracle() / "checkpoint", tower()}));
      },
      ExitCode::kUsage);
  EXPECT_NE(said.find("--vision_tower"), std::string::npos) << said;
}

TEST_F(OriginalLlava, ASavedFolderSaysWhereItsTowerStands) {
  const auto files = [&](const fs::path& asked, bool whole) {
    std::map<std::string, std::string> all;
    for (auto& [name, text] : llava::saved_files(HfConfig::load({model(), asked}), whole)) all[name] = text;
    return all;
  };
  const auto named = [](const std::map<std::string, std::string>& all) {
    return parse_json(all.at("config.json"), "config.json")["mm_vision_tower"].get<std::string>();
  };
  EXPECT_EQ(named(files({}, false)), tower().string()) << "relative: the saved folder stands elsewhere";
  say("mm_vision_tower", "openai/clip");
  EXPECT_TRUE(files(tower(), false).empty());
  const auto whole = files(tower(), true);
  EXPECT_EQ(named(whole), "openai/clip");
  EXPECT_EQ(parse_json(whole.at("config.json"), "config.json")["vision_config"]["patch_size"], 8);
  EXPECT_EQ(whole.at("preprocessor_config.json"), read_text(tower() / "preprocessor_config.json"));
}

TEST_F(OriginalLlava, TextsAroundAPictureAreReadEachAlone) {
  const Tokenizer tokenizer = Tokenizer::load(model());
  const std::string system =
      "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
      "and polite answers to the user's questions. ";
  const Features row = prompt({{.role = "user", .content = "What, <image> this?  "}}, {"wide.jpg"});
  std::vector<int32_t> expected = tokenizer.encode(system + "USER: ", {.add_special_tokens = true});
  const auto begin = static_cast<int32_t>(expected.size());
  expected.insert(expected.end(), 26, llava::kFiller);
  for (const int32_t id : tokenizer.encode("\nWhat,  this? ASSISTANT:")) expected.push_back(id);
  EXPECT_EQ(row.input_ids, expected);
  ASSERT_EQ(row.media.size(), 1U);
  EXPECT_EQ(row.media[0].places.front(), begin);
  EXPECT_EQ(row.media[0].places.size(), 26U);
  EXPECT_EQ(row.media[0].shape, (Shape{1, 3, 40, 40}));
  EXPECT_EQ(std::ranges::count(row.input_ids, *tokenizer.id_of("<s>")), 1);
}

TEST_F(OriginalLlava, AnAnswerIsLearntWithTheSpaceBeforeItAndTheTokenThatEndsIt) {
  const auto processor = llava::load_published_processor(ModelPlace(model()));
  Sample sample;
  sample.where = "row 1";
  sample.messages = {{.role = "user", .content = "One?"},
                     {.role = "assistant", .content = "Yes."},
                     {.role = "user", .content = "Two?"},
                     {.role = "assistant", .content = "No."}};
  const Features row = processor->train_features(sample, {});
  const Tokenizer& tokenizer = processor->tokenizer();
  std::vector<int32_t> learnt;
  std::ranges::copy_if(row.labels, std::back_inserter(learnt), [](int32_t label) { return label >= 0; });
  EXPECT_EQ(tokenizer.decode(learnt), "Yes.</s> No.</s>");
  // As if the conversation were read at once, which is how the authors read it.
  std::string whole =
      "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
      "helpful, detailed, and polite answers to the user's questions. USER: One? ASSISTANT: Yes.</s>"
      "USER: Two? ASSISTANT: No.</s>";
  EXPECT_EQ(row.input_ids, tokenizer.encode(whole, {.add_special_tokens = true}));
}

TEST_F(OriginalLlava, MistralIsAskedInItsOwnWay) {
  say("architectures", {"LlavaMistralForCausalLM"});
  say("model_type", "llava_mistral");
  const HfConfig config = HfConfig::load(model());
  EXPECT_TRUE(llava::read_config(config).mistral);
  const Tokenizer tokenizer = Tokenizer::load(model());
  const Features row = prompt({{.role = "user", .content = "One?"},
                               {.role = "assistant", .content = "Yes."},
                               {.role = "user", .content = "Two?"}});
  EXPECT_EQ(row.input_ids,
            tokenizer.encode("[INST] One? [/INST] Yes. </s>[INST] Two? [/INST]", {.add_special_tokens = true}));
}

TEST_F(OriginalLlava, PicturesArePaddedOnlyWhereTheConfigSaysSo) {
  const auto pixels = [&] { return prompt({{.role = "user", .content = "<image>"}}, {"wide.jpg"}).media.at(0).values; };
  const auto padded = pixels();
  say("image_aspect_ratio", "square");
  const auto cut = pixels();
  say("image_aspect_ratio", nullptr);
  EXPECT_EQ(pixels(), cut);
  EXPECT_NE(padded, cut);
}

}  // namespace
}  // namespace lockstep
