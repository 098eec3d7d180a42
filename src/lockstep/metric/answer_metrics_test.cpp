#include "lockstep/metric/answer_metrics.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<std::string> names_of(const std::vector<AnswerMetric>& metrics) {
  std::vector<std::string> out;
  for (const auto& metric : metrics) out.emplace_back(metric.name);
  return out;
}

TEST(AnswerMetrics, AreChosenByNameInTheOrderOfTheTable) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of(choose_answer_metrics("")),
            (Names{"exact_match", "anls", "rouge_l", "rouge_1", "rouge_2", "bleu_4", "multiple_choice"}));
  EXPECT_EQ(names_of(choose_answer_metrics("rouge_l, exact_match")), (Names{"exact_match", "rouge_l"}));
  EXPECT_EQ(names_of(choose_answer_metrics("loss")), Names{});
}

TEST(AnswerMetrics, RefuseAnUnknownNameWithTheNearest) {
  try {
    choose_answer_metrics("exact_match,rougel");
    FAIL() << "an unknown metric was accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.message(), "--metrics exact_match,rougel: there is no metric \"rougel\"");
    EXPECT_EQ(error.hint(), "did you mean rouge_l?");
    EXPECT_EQ(error.code(), ExitCode::kUsage);
  }
  try {
    choose_answer_metrics("bertscore");
    FAIL() << "an unknown metric was accepted";
  } catch (const UserError& error) {
    EXPECT_NE(error.hint().find("--metric ./my_metric.py"), std::string::npos) << error.hint();
  }
}

TEST(AnswerMeans, CountOnlyTheRowsThatAMetricIsDefinedFor) {
  AnswerMeans means(choose_answer_metrics(""));
  means.add("B", {"B"});
  means.add("The answer is C", {"B"});
  means.add("blue", {"red"});
  means.add("anything", {});
  const auto results = means.results();
  ASSERT_EQ(results.size(), 7U);
  EXPECT_EQ(results[0].name, "exact_match");
  EXPECT_EQ(results[0].rows, 3);
  EXPECT_DOUBLE_EQ(results[0].mean, 1.0 / 3);
  EXPECT_EQ(results[6].name, "multiple_choice");
  EXPECT_EQ(results[6].rows, 2);
  EXPECT_DOUBLE_EQ(results[6].mean, 0.5);
}

TEST(AnswerMeans, LeaveOutWhatNoRowHas) {
  AnswerMeans means(choose_answer_metrics("multiple_choice"));
  means.add("blue", {"red"});
  EXPECT_TRUE(means.results().empty());
}

}  // namespace
}  // namespace lockstep
