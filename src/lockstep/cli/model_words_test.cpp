#include "lockstep/cli/model_words.h"

#include <fstream>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

std::vector<std::string> notices;

TEST(ModelWords, AreThoseOfTheCommandLineEachInItsPlace) {
  const ModelWords model = parse_model_words({"--model=m", "--torch_dtype=bfloat16", "--device=cpu"}, Env(), notices);
  EXPECT_EQ(model.run.model, "m");
  EXPECT_EQ(model.run.dtype, Dtype::kBF16);
  const AnswerFileOptions answering =
      parse_answering_words({"--max_new_tokens=7", "--seed=3", "--strict=true"}, model, Env(), notices);
  EXPECT_EQ(answering.max_new_tokens, 7);
  EXPECT_EQ(answering.sampling.seed, 3U);
  EXPECT_TRUE(answering.rows.strict);
  const EmbeddingOptions embedding = parse_embedding_words({"--pooling=cls", "--batch_size=2"}, model, Env(), notices);
  EXPECT_EQ(embedding.embedding.pooling, Pooling::kCls);
  EXPECT_EQ(embedding.batch.rows, 2);
  EXPECT_TRUE(notices.empty());
}

TEST(ModelWords, OfOtherStacksAreUnderstoodAsByInfer) {
  notices.clear();
  EXPECT_EQ(parse_answering_words({"--num_beams=1", "--do_sample=false"}, {}, Env(), notices).sampling.temperature, 0);
  EXPECT_EQ(parse_model_words({"--model=m", "--infer_backend=pt", "--attn_impl=sdpa"}, Env(), notices).run.model, "m");
  EXPECT_FALSE(notices.empty());
  EXPECT_EQ(parse_answering_words({"--do_sample=false", "--temperature=0.5"}, {}, Env(), notices).sampling.temperature,
            0);
  EXPECT_THROW(parse_answering_words({"--num_beams=4"}, {}, Env(), notices), UserError);
}

TEST(ModelWords, OfAnotherPlaceAreRefused) {
  EXPECT_THROW(parse_model_words({"--model=m", "--max_new_tokens=7"}, Env(), notices), UserError);
  EXPECT_THROW(parse_model_words({}, Env(), notices), UserError);
  EXPECT_THROW(parse_answering_words({"--torch_dtype=bfloat16"}, {}, Env(), notices), UserError);
  EXPECT_THROW(parse_answering_words({"--help"}, {}, Env(), notices), UserError);
  EXPECT_THROW(parse_embedding_words({"--output=x"}, {}, Env(), notices), UserError);
  EXPECT_THROW(parse_embedding_words({"--stage=inputs", "--pooling=last"}, {}, Env(), notices), UserError);
}

TEST(ModelWords, KnowThatFilmsAreTakenAsLlamaFactoryTakesThemWhereNobodyAskedForIt) {
  std::vector<std::string> told;
  const Env env(std::map<std::string, std::string>{{"NFRAMES", "4"}, {"FPS", "1"}});
  const ModelWords model = parse_model_words(
      {"--model=m", "--media_default=MEDIA_AS=llama_factory", "--media_default=VIDEO_MAX_SLICE_NUMS=2"}, env, told);
  EXPECT_EQ(model.run.variables, (std::vector<std::string>{"NFRAMES", "MEDIA_AS"}));
}

using ModelWordsOfACheckpoint = InTestFolder;

TEST_F(ModelWordsOfACheckpoint, AskItAsItWasTrained) {
  std::ofstream(folder_ / "args.json")
      << R"({"system": "Be brief.", "truncation_strategy": "turns", "max_pixels": 589824,
                                              "media_variable": [], "media_default": ["MIN_PIXELS=1024", "FPS=1"]})";
  notices.clear();
  const Env env(std::map<std::string, std::string>{{"FPS", "2"}});
  const ModelWords model = parse_model_words({"--model=" + folder_.string()}, env, notices);
  EXPECT_NE(join(notices, " ").find("Be brief."), std::string::npos);
  const auto rows = [&](const std::vector<std::string>& words) {
    return parse_answering_words(words, model, env, notices).rows;
  };
  EXPECT_EQ(rows({}).system, "Be brief.");
  EXPECT_EQ(rows({"--system=Other."}).system, "Other.");
  EXPECT_EQ(rows({}).media.shrink_to_pixels, 589824);
  EXPECT_EQ(rows({}).media.min_pixels, 1024);
  EXPECT_EQ(rows({}).media.fps, 2) << "the environment comes first";
  const ModelWords bare = parse_model_words({"--model=" + folder_.string(), "--load_args=false"}, Env(), notices);
  EXPECT_EQ(parse_answering_words({}, bare, Env(), notices).rows.system, "");
}

}  // namespace
}  // namespace lockstep
