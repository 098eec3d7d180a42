#include "lockstep/cli/model_words.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(ModelWords, AreThoseOfTheCommandLineEachInItsPlace) {
  const RunOptions run = parse_model_words({"--model=m", "--torch_dtype=bfloat16", "--device=cpu"}, Env());
  EXPECT_EQ(run.model, "m");
  EXPECT_EQ(run.dtype, Dtype::kBF16);
  const AnswerFileOptions answering = parse_answering_words({"--max_new_tokens=7", "--seed=3", "--strict=true"}, Env());
  EXPECT_EQ(answering.max_new_tokens, 7);
  EXPECT_EQ(answering.sampling.seed, 3U);
  EXPECT_TRUE(answering.rows.strict);
  const EmbeddingOptions embedding = parse_embedding_words({"--pooling=cls", "--batch_size=2"}, Env());
  EXPECT_EQ(embedding.embedding.pooling, Pooling::kCls);
  EXPECT_EQ(embedding.batch.rows, 2);
}

TEST(ModelWords, OfAnotherPlaceAreRefused) {
  EXPECT_THROW(parse_model_words({"--model=m", "--max_new_tokens=7"}, Env()), UserError);
  EXPECT_THROW(parse_model_words({}, Env()), UserError);
  EXPECT_THROW(parse_answering_words({"--torch_dtype=bfloat16"}, Env()), UserError);
  EXPECT_THROW(parse_answering_words({"--help"}, Env()), UserError);
  EXPECT_THROW(parse_embedding_words({"--output=x"}, Env()), UserError);
  EXPECT_THROW(parse_embedding_words({"--stage=inputs", "--pooling=last"}, Env()), UserError);
}

}  // namespace
}  // namespace lockstep
