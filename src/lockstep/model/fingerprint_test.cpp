#include "lockstep/model/fingerprint.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class ModelFingerprint : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("lockstep_fingerprint_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write("config.json", "{}");
    write("model.safetensors", std::string(3 << 20, 'w'));
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  fs::path folder_;
};

TEST_F(ModelFingerprint, HowRowsAreSpelledIsAFingerprintOfItsOwn) {
  std::string before = spelling_fingerprint(folder_);
  const std::string of_model = model_fingerprint(folder_);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "preprocessor_config.json",
                           "generation_config.json", "vocab.json", "tokenizer.model", "conversation.py"}) {
    write(name, "{}");
    const std::string now = spelling_fingerprint(folder_);
    EXPECT_NE(now, before) << name;
    before = now;
  }
  for (const char* name : {"args.json", "README.md", "trainer_state.json"}) {  // which runs write
    write(name, "{}");
    EXPECT_EQ(spelling_fingerprint(folder_), before) << name;
  }
  EXPECT_EQ(model_fingerprint(folder_), of_model);
}

TEST_F(ModelFingerprint, SeesOneByteOfTheWeightsAndOfTheConfig) {
  const std::string before = model_fingerprint(folder_);
  EXPECT_EQ(before.size(), 16U);
  EXPECT_EQ(model_fingerprint(folder_), before);
  std::string weights(3 << 20, 'w');
  weights[(2 << 20) + 17] = 'x';
  write("model.safetensors", weights);
  const std::string other = model_fingerprint(folder_);
  EXPECT_NE(other, before);
  write("config.json", "{\"a\": 1}");
  EXPECT_NE(model_fingerprint(folder_), other);
}

TEST_F(ModelFingerprint, LooksAtWeightsAndConfigAlone) {
  const std::string before = model_fingerprint(folder_);
  write("README.md", "hello");
  EXPECT_EQ(model_fingerprint(folder_), before);
  write("model-2.safetensors", "");
  EXPECT_NE(model_fingerprint(folder_), before);
}

TEST_F(ModelFingerprint, CountsWhatItsPlaceAddsToTheFolder) {
  const std::string before = model_fingerprint(folder_);
  write("mm_projector.bin", "a");
  const ModelPlace joined(folder_, {}, {.projector = folder_ / "mm_projector.bin"});
  const std::string with_projector = model_fingerprint(joined);
  EXPECT_EQ(with_projector.size(), 33U);
  EXPECT_TRUE(with_projector.starts_with(before + "+"));
  write("mm_projector.bin", "b");
  EXPECT_NE(model_fingerprint(joined), with_projector);
  const ModelPlace first(folder_, {}, {}, {"<a>", "<b>"}), second(folder_, {}, {}, {"<b>", "<a>"});
  EXPECT_NE(model_fingerprint(first), before);
  EXPECT_NE(model_fingerprint(first), model_fingerprint(second));
}

TEST_F(ModelFingerprint, LooksAtPyTorchsFilesWhereTheyAreRead) {
  const std::string before = model_fingerprint(folder_);
  write("pytorch_model.bin", "a");
  EXPECT_EQ(model_fingerprint(folder_), before) << "safetensors come first";
  fs::remove(folder_ / "model.safetensors");
  const std::string of_torch = model_fingerprint(folder_);
  write("training_args.bin", "a");
  EXPECT_EQ(model_fingerprint(folder_), of_torch);
  write("pytorch_model.bin", "b");
  EXPECT_NE(model_fingerprint(folder_), of_torch);
}

TEST_F(ModelFingerprint, ReadsSamplesOfALargeFile) {
  const auto path = folder_ / "model.safetensors";
  fs::resize_file(path, uintmax_t{5} << 30);  // sparse
  const std::string before = model_fingerprint(folder_);
  fs::resize_file(path, (uintmax_t{5} << 30) + 1);
  EXPECT_NE(model_fingerprint(folder_), before);
}

}  // namespace
}  // namespace lockstep
