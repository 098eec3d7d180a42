// What the args.json of a checkpoint says where the checkpoint is asked.
#include <fstream>

#include <gtest/gtest.h>

#include "lockstep/base/test_folder.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

std::string words_of(const std::vector<std::string>& args, const std::string& verb) {
  return join(translate(verb, args, [](const std::string& name) { return name != "load_args"; }).words, " ");
}

using SavedArgs = InTestFolder;

TEST_F(SavedArgs, CountWhereACheckpointIsAsked) {
  std::ofstream(folder_ / "args.json")
      << R"({"system": "Be brief.", "norm_bbox": null, "truncation_strategy": "right"})";
  const std::string ckpt = folder_.string();
  EXPECT_EQ(words_of({"--adapters", ckpt}, "infer"),
            "--adapters " + ckpt + " --system Be brief. --truncation_strategy right");
  EXPECT_EQ(words_of({"--model", ckpt, "--system", "Other."}, "eval"),
            "--model " + ckpt + " --system Other. --truncation_strategy right");
  EXPECT_EQ(words_of({"--model", ckpt, "--load_args", "false"}, "infer"), "--model " + ckpt);
  EXPECT_EQ(words_of({"--model", ckpt}, "embed"),
            "--model " + ckpt + " --system Be brief. --truncation_strategy right");
  EXPECT_EQ(words_of({"--model", ckpt}, "sft"), "--model " + ckpt) << "what is trained is said anew";
  EXPECT_EQ(words_of({"--model", ckpt, "--system", ""}, "infer").find("Be brief."), std::string::npos);
  std::ofstream(folder_ / "args.json") << R"({"truncation_strategy": "split"})";
  EXPECT_EQ(words_of({"--model", ckpt}, "infer"), "--model " + ckpt);
  std::ofstream(folder_ / "args.json") << R"({"use_chat_template": false})";  // of pre-training
  EXPECT_EQ(words_of({"--model", ckpt}, "infer"), "--model " + ckpt + " --use_chat_template false");
  EXPECT_EQ(words_of({"--model", ckpt, "--use_chat_template", "true"}, "eval"),
            "--model " + ckpt + " --use_chat_template true");
  std::ofstream(folder_ / "args.json") << R"({"use_chat_template": true})";
  EXPECT_EQ(words_of({"--model", ckpt}, "infer"), "--model " + ckpt);
}

TEST_F(SavedArgs, OfPicturesCountWhereAFileOfLlamaFactorySettledThem) {
  std::ofstream(folder_ / "args.json")
      << R"({"media_variable": ["FPS=1.0"], "media_default": ["MEDIA_AS=llama_factory"],
                                              "max_pixels": 589824})";
  const std::string ckpt = folder_.string();
  EXPECT_EQ(
      words_of({"--adapters", ckpt}, "infer"),
      "--adapters " + ckpt + " --max_pixels 589824 --media_default FPS=1.0 --media_default MEDIA_AS=llama_factory");
  EXPECT_EQ(words_of({"--adapters", ckpt, "--max_pixels", "1024"}, "eval"),
            "--adapters " + ckpt + " --max_pixels 1024 --media_default FPS=1.0 --media_default MEDIA_AS=llama_factory");
  EXPECT_EQ(words_of({"--adapters", ckpt}, "embed"), words_of({"--adapters", ckpt}, "infer"));
  EXPECT_EQ(words_of({"--adapters", ckpt, "--load_args", "false"}, "infer"), "--adapters " + ckpt);
  std::ofstream(folder_ / "args.json") << R"({"media_variable": [], "media_default": [], "max_pixels": 589824})";
  EXPECT_EQ(words_of({"--adapters", ckpt}, "infer"), "--adapters " + ckpt) << "said with each command, in ms-swift";
  std::ofstream(folder_ / "args.json") << R"([1])";
  EXPECT_EQ(words_of({"--adapters", ckpt}, "infer"), "--adapters " + ckpt);
}

}  // namespace
}  // namespace lockstep
