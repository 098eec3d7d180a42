#include "lockstep/comm/gather_nested.h"

#include <gtest/gtest.h>

#include "lockstep/tensor/make.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

TEST(GatherNested, GathersUnevenTensorsAndEveryKind) {
  run_ranks(3, [](Rank& rank) {
    const int64_t r = rank.id();
    const Tensor scores = full({r, 2}, static_cast<double>(r) + 0.5, Dtype::kF32);
    const Tensor flags = full({r + 1}, 1, Dtype::kBool);
    Value::List names(static_cast<size_t>(r), Value("rank " + std::to_string(r)));
    const Value mine(Value::Tuple{{scores, flags,
                                   Value::Dict{{"names", names},
                                               {"count", r},
                                               {"mean", static_cast<double>(r) / 2},
                                               {"even", r % 2 == 0},
                                               {"nothing", Value()}}}});
    const auto all = gather_nested(rank.control(), mine, "evaluation");
    ASSERT_EQ(all.size(), 3U);
    for (int64_t from = 0; from < 3; ++from) {
      const auto& items = all[static_cast<size_t>(from)].tuple()->items;
      EXPECT_EQ(shape_of(*items[0].tensor()), (Shape{from, 2}));
      EXPECT_EQ(items[0].tensor()->eq(static_cast<double>(from) + 0.5).sum().item<int64_t>(), from * 2);
      EXPECT_EQ(dtype_of(*items[1].tensor()), Dtype::kBool);
      EXPECT_EQ(items[1].tensor()->numel(), from + 1);
      const auto& dict = *items[2].dict();
      EXPECT_EQ(dict[0].first, "names");
      EXPECT_EQ(dict[0].second.list()->size(), static_cast<size_t>(from));
      for (const auto& name : *dict[0].second.list()) EXPECT_EQ(*name.string(), "rank " + std::to_string(from));
      EXPECT_EQ(*dict[1].second.integer(), from);
      EXPECT_EQ(*dict[2].second.number(), static_cast<double>(from) / 2);
      EXPECT_EQ(*dict[3].second.boolean(), from % 2 == 0);
      EXPECT_TRUE(dict[4].second.is_none());
    }
  });
}

/// Every rank's error for a gather where rank 1 returns something else.
std::vector<std::string> errors_when(const Value& usual, const Value& odd) {
  std::vector<std::string> errors(3);
  run_ranks(3, [&](Rank& rank) {
    try {
      gather_nested(rank.control(), rank.id() == 1 ? odd : usual, "labels");
    } catch (const CollectiveError& error) {
      errors[static_cast<size_t>(rank.id())] = error.what();
    }
    rank.control().barrier("the communicator still works");
  });
  return errors;
}

TEST(GatherNested, ATupleBesideATensorIsTheSameErrorOnEveryRank) {
  const Tensor labels = zeros({2, 8}, Dtype::kI64);
  const auto errors = errors_when(labels, Value::Tuple{{labels, Value::Dict{{"id", "x"}}}});
  for (const auto& error : errors) {
    EXPECT_EQ(error, errors[0]);
    EXPECT_NE(error.find("rank 1: (i64[*, 8], {\"id\": str})"), std::string::npos) << error;
    EXPECT_NE(error.find("ranks 0, 2: i64[*, 8]"), std::string::npos) << error;
    EXPECT_NE(error.find("\"labels\""), std::string::npos) << error;
  }
}

TEST(GatherNested, RefusesOtherDtypesShapesAndKeys) {
  const Value usual(zeros({2, 8}, Dtype::kF32));
  for (const Value& odd : {Value(zeros({2, 8}, Dtype::kBF16)), Value(zeros({2, 9}, Dtype::kF32)),
                           Value(zeros({2}, Dtype::kF32)), Value(), Value(1.0)}) {
    for (const auto& error : errors_when(usual, odd)) EXPECT_NE(error.find("differ"), std::string::npos);
  }
  for (const auto& error : errors_when(Value::Dict{{"a", 1.0}}, Value::Dict{{"b", 1.0}})) {
    EXPECT_NE(error.find("{\"b\": float}"), std::string::npos) << error;
  }
}

TEST(GatherNested, AnEmptyListAgreesWithAnyListButNotWithOthers) {
  run_ranks(2, [](Rank& rank) {
    const Value rows = rank.id() == 0 ? Value::List{} : Value::List{Value::Dict{{"]", "x"}}, Value::Dict{{"]", "y"}}};
    const auto all = gather_nested(rank.control(), Value::Tuple{{rows, 1.0}}, "rows");
    EXPECT_EQ(all[0].tuple()->items[0].list()->size(), 0U);
    EXPECT_EQ(all[1].tuple()->items[0].list()->size(), 2U);
  });
  for (const auto& error : errors_when(Value::Dict{{"[...]", 1.0}}, Value::Dict{{"[\"x]", 1.0}})) {
    EXPECT_NE(error.find("differ"), std::string::npos);  // keys are no lists
  }
  for (const auto& error : errors_when(Value::List{}, "text")) EXPECT_NE(error.find("differ"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
