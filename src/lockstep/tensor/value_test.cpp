#include "lockstep/tensor/value.h"

#include <gtest/gtest.h>

#include "lockstep/tensor/make.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {
namespace {

TEST(Value, HoldsEveryKind) {
  EXPECT_TRUE(Value().is_none());
  EXPECT_EQ(*Value(true).boolean(), true);
  EXPECT_EQ(*Value(int64_t{7}).integer(), 7);
  EXPECT_EQ(*Value(0.5).number(), 0.5);
  EXPECT_EQ(*Value("text").string(), "text");
  const Tensor ones = full({2, 3}, 1, Dtype::kF32);
  EXPECT_EQ(Value(ones).tensor()->data_ptr(), ones.data_ptr());
  EXPECT_EQ(Value(Value::List{"a", "b"}).list()->size(), 2U);
  EXPECT_EQ(Value(Value::Tuple{{"a"}}).tuple()->items.size(), 1U);
  EXPECT_EQ(Value(Value::Dict{{"key", 1.0}}).dict()->front().first, "key");
  EXPECT_EQ(Value(true).integer(), nullptr);
  EXPECT_EQ(Value(Value::List{}).tuple(), nullptr);
}

TEST(Value, StructureLeavesOutWhatMayDiffer) {
  const Value logits(zeros({5, 4}, Dtype::kF32)), lengths(zeros({5}, Dtype::kI64)), loss(zeros({}, Dtype::kBF16));
  EXPECT_EQ(logits.structure(), "f32[*, 4]");
  EXPECT_EQ(lengths.structure(), "i64[*]");
  EXPECT_EQ(loss.structure(), "bf16[]");
  EXPECT_EQ(Value(Value::Tuple{{logits, Value::Dict{{"id", "x"}, {"n", int64_t{1}}}}}).structure(),
            "(f32[*, 4], {\"id\": str, \"n\": int})");
  EXPECT_EQ(Value(Value::Tuple{{logits}}).structure(), "(f32[*, 4],)");
  EXPECT_EQ(Value(Value::List{"a", "b"}).structure(), "[str...]");
  EXPECT_EQ(Value(Value::List{"a", 1.0, true, Value()}).structure(), "[str, float, bool, none]");
  EXPECT_EQ(Value(Value::List{}).structure(), "[...]");
  EXPECT_EQ(Value(Value::Dict{{"a\"]", 1.0}}).structure(), "{\"a\\\"]\": float}");
}

}  // namespace
}  // namespace lockstep
