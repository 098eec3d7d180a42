#include "lockstep/train/admission.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Features row(int64_t tokens, const std::string& where) {
  Features made;
  made.input_ids.assign(static_cast<size_t>(tokens), 1);
  made.labels = made.input_ids;
  made.sample.where = where;
  return made;
}

/// Padded tokens up to 100 fit.
bool small(const std::vector<Features>& rows) {
  size_t longest = 0;
  for (const auto& one : rows) longest = std::max(longest, one.input_ids.size());
  return longest * rows.size() <= 100;
}

std::vector<std::vector<std::string>> names(const Admitted& admitted) {
  std::vector<std::vector<std::string>> all;
  for (const auto& batch : admitted.batches) {
    auto& one = all.emplace_back();
    for (const auto& features : batch) one.push_back(features.sample.where);
  }
  return all;
}

TEST(Admission, SplitsUntilEachPartFitsAndKeepsTheOrder) {
  Admission admission(small);
  const Admitted admitted = admission.admit({row(30, "a"), row(30, "b"), row(60, "c"), row(10, "d"), row(90, "e")});
  EXPECT_EQ(names(admitted), (std::vector<std::vector<std::string>>{{"a", "b"}, {"c"}, {"d"}, {"e"}}));
  EXPECT_TRUE(admitted.refused.empty());
}

TEST(Admission, NamesARowThatFitsNowhere) {
  Admission admission(small);
  const Admitted admitted = admission.admit({row(20, "rows.jsonl:1"), row(101, "rows.jsonl:2")});
  EXPECT_EQ(names(admitted), (std::vector<std::vector<std::string>>{{"rows.jsonl:1"}}));
  ASSERT_EQ(admitted.refused.size(), 1);
  EXPECT_NE(admitted.refused[0].find("rows.jsonl:2: 101 tokens"), std::string::npos);
}

TEST(Admission, AsksOnceForAllThatIsNoLarger) {
  int asked = 0;
  Admission admission([&](const std::vector<Features>& rows) {
    ++asked;
    return small(rows);
  });
  admission.admit({row(50, "a"), row(50, "b")});
  admission.admit({row(40, "c"), row(50, "d")});
  admission.admit({row(1, "e")});
  EXPECT_EQ(asked, 1);
  admission.admit({row(70, "f"), row(70, "g")});  // the pair and one of them
  EXPECT_EQ(asked, 3);
  admission.admit(
      {row(75, "h"), row(70, "i")});  // larger than a pair that was too large: only the single ones are asked
  EXPECT_EQ(asked, 4);
}

TEST(Admission, SumsRowsThatStandBehindOneAnother) {
  const auto sum_fits = [](const std::vector<Features>& rows) {
    size_t sum = 0;
    for (const auto& one : rows) sum += one.input_ids.size();
    return sum <= 100;
  };
  const auto of_one_label = [](int64_t tokens, const std::string& where) {
    Features made = row(tokens, where);
    std::fill(made.labels.begin() + 1, made.labels.end(), -100);
    return made;
  };
  Admission admission(sum_fits, /*packed=*/true);
  EXPECT_EQ(admission.admit({of_one_label(90, "a"), of_one_label(10, "b")}).batches.size(), 1U);
  // No more rows and labels, none longer than those that fitted: only together are they too many.
  EXPECT_EQ(admission.admit({of_one_label(60, "c"), of_one_label(60, "d")}).batches.size(), 2U);
}

}  // namespace
}  // namespace lockstep
