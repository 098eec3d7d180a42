// Fresh checkpoints of OmniLMM.
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/omnilmm.h"

namespace lockstep::omnilmm {

std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab) {
  struct Sizes {
    TextSize text;
    VisionSize vision;  // image_size: of the table of positions
    int64_t image_size, queries;
  };
  static const std::map<std::string, Sizes> sizes{
      {"tiny", {{128, 320, 3, 4, 2, 2048}, {64, 192, 3, 2, 24, 8}, 32, 4}},
      {"small", {{384, 1024, 8, 6, 2, 4096}, {256, 768, 7, 8, 112, 14}, 168, 16}},
      {"demo", {{256, 640, 4, 8, 2, 2048}, {128, 384, 3, 4, 48, 12}, 48, 16}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  const auto& [text, vision, image_size, queries] = found->second;
  Json config = fresh_text_config("omnilmm", "OmniLMMForCausalLM", text, vocab);
  config.update({{"sliding_window", text.max_positions / 2},
                 {"mm_vision_tower", "eva02_enormous_patch14_clip_224.laion2b_plus"},
                 {"mm_use_im_start_end", true},
                 {"use_mm_proj", true},
                 {"num_query", queries},
                 {"image_size", image_size},
                 {"vision_config",
                  {{"hidden_size", vision.hidden},
                   {"intermediate_size", vision.mlp},
                   {"num_hidden_layers", vision.layers},
                   {"num_attention_heads", vision.heads},
                   {"image_size", vision.image_size},
                   {"patch_size", vision.patch}}}});
  const Json tokens = {{"im_patch_token", kPatch}, {"im_start_token", kStart}, {"im_end_token", kEnd}};
  return {{"config.json", std::move(config)},
          {"tokenizer_config.json", {{"extra_special_tokens", tokens}}},
          {"chat_template.jinja", std::string(chat_template())}};
}

}  // namespace lockstep::omnilmm
