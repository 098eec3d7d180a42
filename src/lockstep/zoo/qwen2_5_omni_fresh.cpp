// Fresh checkpoints of Qwen2.5-Omni: what sees, hears and thinks.
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/data/patch_image.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/qwen2_5_omni.h"

namespace lockstep::qwen2_5_omni {
namespace {

/// `window`: the edge of a window in pixels. `max_pixels`: of a picture, so that small models stay quick.
struct Sizes {
  TextSize text;
  int64_t hidden, mlp, depth, heads, window, max_pixels;
  int64_t sound, sound_layers, sound_heads;
};

Json vision_config(const Sizes& size) {
  return {{"model_type", "qwen2_5_omni_vision_encoder"},
          {"depth", size.depth},
          {"hidden_act", "silu"},
          {"hidden_size", size.hidden},
          {"intermediate_size", size.mlp},
          {"num_heads", size.heads},
          {"in_channels", 3},
          {"out_hidden_size", size.text.hidden},
          {"patch_size", 14},
          {"spatial_merge_size", 2},
          {"window_size", size.window},
          {"fullatt_block_indexes", Json::array({size.depth - 1})},
          {"temporal_patch_size", 2}};
}

/// Whisper's encoder; its mlp is four times as wide.
Json audio_config(const Sizes& size) {
  return {{"model_type", "qwen2_5_omni_audio_encoder"},
          {"activation_function", "gelu"},
          {"d_model", size.sound},
          {"encoder_attention_heads", size.sound_heads},
          {"encoder_ffn_dim", 4 * size.sound},
          {"encoder_layers", size.sound_layers},
          {"max_source_positions", 1500},
          {"n_window", 100},
          {"num_mel_bins", 128},
          {"output_dim", size.text.hidden},
          {"scale_embedding", false}};
}

Json text_config(const Sizes& size, int64_t vocab) {
  Json config = fresh_text_config("qwen2_5_omni_text", "", size.text, vocab);
  for (const char* key : {"architectures", "head_dim", "torch_dtype"}) config.erase(key);
  const int64_t pairs = size.text.hidden / size.text.heads / 2, side = pairs * 3 / 8;
  config.update({{"rope_theta", 1000000.0},
                 {"use_sliding_window", false},
                 {"rope_scaling",
                  {{"type", "default"}, {"rope_type", "default"}, {"mrope_section", {pairs - 2 * side, side, side}}}}});
  return config;
}

Json preprocessor_config(const Sizes& size) {
  PatchImageConfig picture;
  picture.max_pixels = size.max_pixels;
  Json file = patch_image_config_json(picture);
  file.update({{"processor_class", "Qwen2_5OmniProcessor"},
               {"feature_extractor_type", "WhisperFeatureExtractor"},
               {"feature_size", 128},
               {"chunk_length", 300},
               {"hop_length", 160},
               {"n_fft", 400},
               {"n_samples", 300 * 16000},
               {"nb_max_frames", 30000},
               {"padding_value", 0.0},
               {"return_attention_mask", true},
               {"sampling_rate", 16000}});
  return file;
}

}  // namespace

std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab) {
  static const std::map<std::string, Sizes> sizes{
      {"tiny", {{128, 320, 3, 4, 2, 2048}, 64, 160, 2, 2, 56, 28 * 28 * 16, 64, 2, 2}},
      {"small", {{384, 1024, 8, 6, 2, 4096}, 256, 684, 6, 8, 112, 28 * 28 * 64, 256, 6, 4}},
      {"demo", {{192, 512, 4, 6, 2, 2048}, 128, 342, 4, 4, 56, 28 * 28 * 16, 128, 2, 4}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  const Sizes& chosen = found->second;
  const Json words = {{"image_token", "<|IMAGE|>"},           {"audio_token", "<|AUDIO|>"},
                      {"video_token", "<|VIDEO|>"},           {"vision_bos_token", "<|vision_bos|>"},
                      {"vision_eos_token", "<|vision_eos|>"}, {"audio_bos_token", "<|audio_bos|>"},
                      {"audio_eos_token", "<|audio_eos|>"}};
  const Json thinker = {{"model_type", "qwen2_5_omni_thinker"},
                        {"audio_token_index", words["audio_token"]},
                        {"image_token_index", words["image_token"]},
                        {"video_token_index", words["video_token"]},
                        {"audio_start_token_id", words["audio_bos_token"]},
                        {"audio_end_token_id", words["audio_eos_token"]},
                        {"vision_start_token_id", words["vision_bos_token"]},
                        {"vision_end_token_id", words["vision_eos_token"]},
                        {"position_id_per_seconds", 25},
                        {"seconds_per_chunk", 2},
                        {"pad_token_id", nullptr},
                        {"tie_word_embeddings", false},
                        {"text_config", text_config(chosen, vocab)},
                        {"vision_config", vision_config(chosen)},
                        {"audio_config", audio_config(chosen)}};
  Json tokenizer = {{"extra_special_tokens", words}, {"processor_class", "Qwen2_5OmniProcessor"}};
  tokenizer.update(words);
  return {{"config.json",
           {{"architectures", {"Qwen2_5OmniModel"}},
            {"model_type", "qwen2_5_omni"},
            {"enable_audio_output", false},
            {"enable_talker", false},
            {"torch_dtype", "bfloat16"},
            {"thinker_config", thinker}}},
          {"preprocessor_config.json", preprocessor_config(chosen)},
          {"tokenizer_config.json", tokenizer},
          {"chat_template.jinja", media_chatml_template({{"image", "<|vision_bos|><|IMAGE|><|vision_eos|>"},
                                                         {"audio", "<|audio_bos|><|AUDIO|><|audio_eos|>"},
                                                         {"video", "<|vision_bos|><|VIDEO|><|vision_eos|>"}})}};
}

}  // namespace lockstep::qwen2_5_omni
