#include "lockstep/cli/model_words.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<std::string> notices;

TEST(ModelWords, AreThoseOfTheCommandLineEachInItsPlace) {
  const RunOptions run = parse_model_words({"--model=m", "--torch_dtype=bfloat16", "--device=cpu"}, Env(), notices);
  EXPECT_EQ(run.model, "m");
  EXPECT_EQ(run.dtype, Dtype::kBF16);
  const AnswerFileOptions answering =
      parse_answering_words({"--max_new_tokens=7", "--seed=3", "--strict=true"}, Env(), notices);
  EXPECT_EQ(answering.max_new_tokens, 7);
  EXPECT_EQ(answering.sampling.seed, 3U);
  EXPECT_TRUE(answering.rows.strict);
  const EmbeddingOptions embedding = parse_embedding_words({"--pooling=cls", "--batch_size=2"}, Env(), notices);
  EXPECT_EQ(embedding.embedding.pooling, Pooling::kCls);
  EXPECT_EQ(embedding.batch.rows, 2);
  EXPECT_TRUE(notices.empty());
}

TEST(ModelWords, OfOtherStacksAreUnderstoodAsByInfer) {
  notices.clear();
  EXPECT_EQ(parse_answering_words({"--num_beams=1", "--do_sample=false"}, Env(), notices).sampling.temperature, 0);
  EXPECT_EQ(parse_model_words({"--model=m", "--infer_backend=pt", "--attn_impl=sdpa"}, Env(), notices).model, "m");
  EXPECT_FALSE(notices.empty());
  EXPECT_EQ(parse_answering_words({"--do_sample=false", "--temperature=0.5"}, Env(), notices).sampling.temperature, 0);
  EXPECT_THROW(parse_answering_words({"--num_beams=4"}, Env(), notices), UserError);
}

TEST(ModelWords, OfAnotherPlaceAreRefused) {
  EXPECT_THROW(parse_model_words({"--model=m", "--max_new_tokens=7"}, Env(), notices), UserError);
  EXPECT_THROW(parse_model_words({}, Env(), notices), UserError);
  EXPECT_THROW(parse_answering_words({"--torch_dtype=bfloat16"}, Env(), notices), UserError);
  EXPECT_THROW(parse_answering_words({"--help"}, Env(), notices), UserError);
  EXPECT_THROW(parse_embedding_words({"--output=x"}, Env(), notices), UserError);
  EXPECT_THROW(parse_embedding_words({"--stage=inputs", "--pooling=last"}, Env(), notices), UserError);
}

}  // namespace
}  // namespace lockstep
