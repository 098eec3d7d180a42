#include "lockstep/tasks/answer_prompts.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

Json answered(const std::string& row) {
  return answer_row(sample_from_row(parse_json(row, "row"), "row", {}), Json{{"response", "a"}});
}

TEST(AnswerRow, AsksTheSameAgain) {
  const std::string call =
      R"({"role": "assistant", "content": "", "tool_calls":
          [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}, "id": "i"}], "reasoning_content": "hm"})";
  const std::string result = R"({"role": "tool", "content": "sunny", "name": "f", "tool_call_id": "i"})";
  const Json row = answered(R"({"messages": [{"role": "user", "content": "q"}, )" + call + ", " + result +
                            R"(, {"role": "assistant", "content": "old"}],
                             "tools": [{"type": "function", "function": {"name": "f"}}],
                             "chat_template_kwargs": {"enable_thinking": false, "max_pixels": 50176}, "channel": "c"})");
  EXPECT_EQ(row["messages"][1], parse_json(call, "call"));
  EXPECT_EQ(row["messages"][2], parse_json(result, "result"));
  EXPECT_EQ(row["messages"][3], (Json{{"role", "assistant"}, {"content", "a"}}));
  EXPECT_EQ(row["labels"], "old");
  EXPECT_EQ(row["tools"], parse_json(R"([{"type": "function", "function": {"name": "f"}}])", "tools"));
  EXPECT_EQ(row["chat_template_kwargs"], (Json{{"enable_thinking", false}, {"max_pixels", 50176}}));
  EXPECT_EQ(row["group"], "c");
  Json again = answered(row.dump());
  again["labels"] = "old";
  EXPECT_EQ(again, row);
}

TEST(AnswerRow, KeepsWhatItsTurnsCountInTheLoss) {
  const Json row = answered(R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "b", "loss": false}, {"role": "user", "content": "r"},
      {"role": "assistant", "content": "c", "loss_scale": 2.5}, {"role": "user", "content": "s"}]})");
  EXPECT_EQ(row["messages"][1]["loss"], false);
  EXPECT_EQ(row["messages"][3]["loss_scale"], 2.5);
  EXPECT_EQ(row["messages"][0], (Json{{"role", "user"}, {"content", "q"}}));
  EXPECT_FALSE(row.contains("tools") || row.contains("chat_template_kwargs") || row.contains("objects"));
}

TEST(AnswerRow, KeepsTheBoxesOfItsQuestion) {
  const Json row = answered(R"({"query": "what is <bbox>?", "response": "<ref-object> at <bbox>",
      "objects": {"ref": ["a cat"], "bbox": [[0.1, 0.2], [0.3, 0.4]], "bbox_type": "norm1"}})");
  EXPECT_EQ(row["objects"]["bbox"], Json::parse("[[0.1, 0.2]]"));
  EXPECT_TRUE(row["objects"]["ref"].empty());
  EXPECT_EQ(answered(row.dump())["objects"], row["objects"]);
}

}  // namespace
}  // namespace lockstep
