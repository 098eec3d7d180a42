// The sizes that people have (configs/): every tensor counted, against the totals that their model cards state.
#include <filesystem>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

/// OmniLMM's 32009 tokens are Mistral's 32000 and the nine that OpenBMB/OmniLMM omnilmm/model/omnilmm.py
/// initialize_vision_tokenizer adds: patch, start and end of a picture, three pairs of marks.
const std::map<std::string, int64_t>& published() {
  static const std::map<std::string, int64_t> parameters{
      {"LLaVA-1.5-7B", 7'063'427'072},     {"LLaVA-1.5-13B", 13'351'494'656},  {"Qwen2.5-7B", 7'615'616'512},
      {"llava-v1.5-7b", 7'062'902'784},  // the authors' own: without transformers' 64 further tokens
      {"Qwen2.5-32B", 32'763'876'352},     {"Qwen2.5-72B", 72'706'203'648},    {"Qwen2.5-VL-3B", 3'754'622'976},
      {"Qwen2.5-VL-7B", 8'292'166'656},    {"Qwen2.5-VL-32B", 33'452'718'336}, {"Qwen2.5-VL-72B", 73'410'777'344},
      {"InternVL2.5-1B", 938'193'024},     {"InternVL2.5-8B", 8'075'365'376},  {"InternVL2.5-26B", 25'514'186'112},
      {"InternVL2.5-78B", 78'408'318'336}, {"MiniCPM-V-2.6", 8'099'175'152},   {"Mistral-7B-v0.1", 7'241'732'096},
      {"Qwen3-8B", 8'190'735'360},         {"MiniCPM-o-2.6", 8'423'157'488},  // without what speaks
      {"Qwen2.5-Omni-3B", 5'088'069'376},   // without its vocoder: 5,537,120,640 with it
      {"Qwen2.5-Omni-7B", 10'283'174'144},  // 10,732,225,408
      {"OmniLMM-12B", 11'614'130'944},      // counted from timm's and transformers' shapes: the card says 12B
  };
  return parameters;
}

TEST(RealSizes, HaveAsManyParametersAsTheirCardsSay) {
  const fs::path configs = fs::path(LOCKSTEP_FIXTURES).parent_path().parent_path() / "configs";
  size_t seen = 0;
  for (const auto& folder : fs::directory_iterator(configs)) {
    const std::string name = folder.path().filename().string();
    SCOPED_TRACE(name);
    const HfConfig config = HfConfig::load(folder.path());
    const Model model = family_of(config).build(config);
    int64_t total = 0;
    for (const auto& block : model.blocks) {
      for (const auto& param : block->params()) {
        for (const auto& source : param.sources) total += param.tied ? 0 : numel_of(source.shape);
      }
    }
    for (const auto& source : model.unused) total += numel_of(source.shape);
    ASSERT_TRUE(published().contains(name));
    EXPECT_EQ(total, published().at(name));
    ++seen;
  }
  EXPECT_EQ(seen, published().size());
}

}  // namespace
}  // namespace lockstep
