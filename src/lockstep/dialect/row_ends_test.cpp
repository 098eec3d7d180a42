// Which scripts cut rows that are too long, where nothing is said of it.
#include <gtest/gtest.h>

#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

std::string how_rows_end(const std::vector<std::string>& more, const std::string& verb = "sft") {
  std::vector<std::string> words = {"--model_name_or_path", "m"};
  words.insert(words.end(), more.begin(), more.end());
  words = translate(verb, words, [](const std::string&) { return true; }).words;
  std::string found;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "--truncation_strategy") found += (found.empty() ? "" : " ") + words[i + 1];
  }
  return found;
}

TEST(RowEnds, AreCutAsTheScriptsDo) {
  EXPECT_EQ(how_rows_end({"--mm_projector_type", "mlp2x_gelu"}), "right") << "LLaVA";
  EXPECT_EQ(how_rows_end({"--tune_vision", "true"}), "right") << "MiniCPM-V";
  EXPECT_EQ(how_rows_end({"--model_max_length", "512"}), "right") << "another script of the Trainer";
  EXPECT_EQ(how_rows_end({"--model_max_length", "512", "--truncation_strategy", "delete"}), "delete");
  EXPECT_EQ(how_rows_end({"--max_length", "512"}), "");
  EXPECT_EQ(how_rows_end({"--stage", "sft"}), "turns") << "LLaMA-Factory";
  EXPECT_EQ(how_rows_end({"--mm_projector_type", "mlp2x_gelu"}, "infer"), "") << "no prompt loses its end";
}

}  // namespace
}  // namespace lockstep
