// What LLaMA-Factory does where nothing is said, and the words of its files settle what that is.
#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

bool has_any(const std::string&) { return true; }

Translation translated(const Words& more, const std::string& verb) {
  Words words{"--model_name_or_path", "m", "--finetuning_type", "lora"};
  words.insert(words.end(), more.begin(), more.end());
  return translate(verb, words, has_any);
}

/// The values of a flag in what `more` is translated to, each behind a blank.
std::string values_of(const std::string& flag, const Words& more, const std::string& verb = "sft") {
  const Words words = translated(more, verb).words;
  std::string found;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == flag) found += (found.empty() ? "" : " ") + words[i + 1];
  }
  return found;
}

TEST(LlamaFactoryStagePt, CutsLongTextsIntoSeveralWhereNothingElseIsSaid) {
  const std::string flag = "--truncation_strategy";
  EXPECT_EQ(values_of(flag, {"--stage", "pt"}), "split");
  EXPECT_EQ(values_of(flag, {"--stage", "pt"}, "plan"), "split");
  EXPECT_EQ(values_of(flag, {"--stage", "pt", "--eval_dataset", "e"}, "eval"), "split");
  EXPECT_EQ(values_of(flag, {"--stage", "pt", "--truncation_strategy", "right"}), "right") << "once";
  EXPECT_EQ(values_of(flag, {"--stage", "pt", "--packing", "false"}), "turns");
  EXPECT_EQ(values_of(flag, {"--stage", "sft"}), "turns");
  EXPECT_EQ(values_of(flag, {"--stage", "pt", "--streaming", "true", "--max_steps", "9"}), "turns")
      << "rows that are streamed are not looked at before, and nobody asked for pieces";
  EXPECT_TRUE(translated({"--stage", "pt"}, "sft").unsaid.contains(flag));
}

TEST(LlamaFactorySchedule, SaysHowLongARateStaysAndFalls) {
  const std::string flag = "--lr_scheduler_kwargs";
  const auto shape = [&](Words more) {
    more.insert(more.end(), {"--stage", "sft", "--lr_scheduler_type", "warmup_stable_decay"});
    return parse_json_or_discard(values_of(flag, more));
  };
  EXPECT_EQ(shape({}), (Json{{"num_stable_steps", "third"}, {"num_decay_steps", "two_thirds"}}));
  EXPECT_EQ(shape({flag, "{'num_decay_steps': 100}"}), (Json{{"num_decay_steps", 100}, {"num_stable_steps", "third"}}));
  EXPECT_EQ(shape({flag, R"({"num_stable_steps": 7, "num_decay_steps": 9, "min_lr_ratio": 0.1})"}),
            (Json{{"num_stable_steps", 7}, {"num_decay_steps", 9}, {"min_lr_ratio", 0.1}}));
  EXPECT_EQ(values_of(flag, {"--stage", "sft", "--lr_scheduler_type", "cosine"}), "");
  EXPECT_EQ(join(translate("sft", {"--model", "m", "--lr_scheduler_type", "warmup_stable_decay"}, has_any).words, " ")
                .find(flag),
            std::string::npos)
      << "ms-swift leaves it to transformers, which refuses it";
}

}  // namespace
}  // namespace lockstep
