// Fresh checkpoints of MiniCPM-V 2.6 and MiniCPM-o 2.6.
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/minicpm.h"

namespace lockstep::minicpm {
namespace {

/// `slices`: of a picture, beside the whole; each about as large as a square of `resolution` pixels an edge.
struct Sizes {
  TextSize text;
  VisionSize vision;
  int64_t queries, resolution, slices;
};

Json vision_config(const VisionSize& size) {
  return {{"model_type", "siglip"},           {"hidden_size", size.hidden},        {"intermediate_size", size.mlp},
          {"num_hidden_layers", size.layers}, {"num_attention_heads", size.heads}, {"image_size", size.image_size},
          {"patch_size", size.patch}};
}

Json config_of(const Sizes& size, int64_t vocab) {
  Json config = fresh_text_config("minicpmv", "MiniCPMV", size.text, vocab);
  config.erase("head_dim");  // Qwen2 has no such key
  config.update({{"version", 2.6},
                 {"batch_vision_input", true},
                 {"drop_vision_last_layer", false},
                 {"image_size", size.resolution},
                 {"patch_size", size.vision.patch},
                 {"query_num", size.queries},
                 {"slice_mode", true},
                 {"use_image_id", true},
                 {"slice_config",
                  {{"max_slice_nums", size.slices},
                   {"patch_size", size.vision.patch},
                   {"scale_resolution", size.resolution},
                   {"model_type", "minicpmv"}}},
                 {"vision_config", vision_config(size.vision)}});
  return config;
}

Json preprocessor_of(const Sizes& size) {
  const SliceSpelling words;
  Json file =
      slice_image_config_json({.patch = size.vision.patch, .resolution = size.resolution, .max_slices = size.slices});
  file.update({{"processor_class", "MiniCPMVProcessor"},
               {"version", 2.6},
               {"use_image_id", true},
               {"image_feature_size", size.queries},
               {"unk", words.filled},
               {"im_start", words.whole_begin},
               {"im_end", words.whole_end},
               {"slice_start", words.part_begin},
               {"slice_end", words.part_end},
               {"im_id_start", words.number_begin},
               {"im_id_end", words.number_end}});
  return file;
}

/// Whisper's encoder; its mlp is four times as wide.
struct SoundSize {
  int64_t hidden, layers, heads, max_positions;
};

void add_sound(Json& config, const SoundSize& size) {
  config.update({{"architectures", {"MiniCPMO"}},
                 {"model_type", "minicpmo"},
                 {"audio_chunk_length", 1.0},
                 {"audio_pool_step", 2},
                 {"chunk_input", true},
                 {"init_vision", true},
                 {"init_audio", true},
                 {"init_tts", false},
                 {"audio_config",
                  {{"model_type", "whisper"},
                   {"activation_function", "gelu"},
                   {"d_model", size.hidden},
                   {"encoder_attention_heads", size.heads},
                   {"encoder_ffn_dim", 4 * size.hidden},
                   {"encoder_layers", size.layers},
                   {"max_source_positions", size.max_positions},
                   {"num_mel_bins", 80}}}});
}

}  // namespace

std::vector<std::pair<std::string, Json>> fresh_omni_files(const std::string& size, int64_t vocab) {
  static const std::map<std::string, SoundSize> sizes{
      {"tiny", {64, 2, 2, 1500}}, {"small", {256, 6, 4, 1500}}, {"demo", {128, 2, 4, 1500}}};
  auto files = fresh_vision_files(size, vocab);
  for (auto& [name, json] : files) {
    if (name == "config.json") add_sound(json, sizes.at(size));
    if (name == "preprocessor_config.json") {
      json.update({{"processor_class", "MiniCPMOProcessor"},
                   {"feature_extractor_type", "WhisperFeatureExtractor"},
                   {"feature_size", 80},
                   {"chunk_length", 30},
                   {"hop_length", 160},
                   {"n_fft", 400},
                   {"sampling_rate", 16000}});
    }
    if (name == "tokenizer_config.json") {
      json["extra_special_tokens"].update({{"audio_start", "<|audio_start|>"}, {"audio_end", "<|audio_end|>"}});
    }
  }
  return files;
}

std::vector<std::pair<std::string, Json>> fresh_vision_files(const std::string& size, int64_t vocab) {
  static const std::map<std::string, Sizes> sizes{
      {"tiny", {{128, 320, 3, 4, 2, 2048}, {64, 192, 2, 2, 128, 8}, 4, 64, 3}},
      {"small", {{384, 1024, 8, 6, 2, 4096}, {256, 768, 6, 8, 980, 14}, 16, 224, 4}},
      {"demo", {{256, 640, 4, 8, 2, 2048}, {128, 384, 2, 4, 192, 12}, 16, 96, 1}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  const SliceSpelling words;
  const Json tokenizer = {{"unk_token", words.filled},
                          {"extra_special_tokens",
                           {{"unk", words.filled},
                            {"im_start", words.whole_begin},
                            {"im_end", words.whole_end},
                            {"slice_start", words.part_begin},
                            {"slice_end", words.part_end},
                            {"im_id_start", words.number_begin},
                            {"im_id_end", words.number_end}}}};
  return {{"config.json", config_of(found->second, vocab)},
          {"preprocessor_config.json", preprocessor_of(found->second)},
          {"tokenizer_config.json", tokenizer},
          {"chat_template.jinja", std::string(chatml_template())}};
}

}  // namespace lockstep::minicpm
