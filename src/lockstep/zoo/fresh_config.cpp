#include "lockstep/zoo/fresh_config.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/data/clip_image.h"

namespace lockstep {
namespace {

/// ChatML's default system message, and the generation prompt.
constexpr std::string_view kGreeting = R"({%- if messages[0]['role'] != 'system' -%}
{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' -}}
{%- endif -%}
)";
constexpr std::string_view kAnswerBegins = R"({%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%}
)";

}  // namespace

Json fresh_text_config(const std::string& model_type, const std::string& architecture, const TextSize& size,
                       int64_t vocab) {
  return {{"architectures", {architecture}},
          {"model_type", model_type},
          {"vocab_size", vocab},
          {"hidden_size", size.hidden},
          {"intermediate_size", size.mlp},
          {"num_hidden_layers", size.layers},
          {"num_attention_heads", size.heads},
          {"num_key_value_heads", size.kv_heads},
          {"head_dim", size.hidden / size.heads},
          {"hidden_act", "silu"},
          {"max_position_embeddings", size.max_positions},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000.0},
          {"initializer_range",
           size.hidden < 256 ? 0.05 : 0.02},  // 0.02 is for wide models: narrow ones learn late from it
          {"attention_dropout", 0.0},
          {"tie_word_embeddings", false},
          {"use_cache", true},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"pad_token_id", nullptr},
          {"torch_dtype", "bfloat16"}};
}

Json fresh_vision_config(const VisionSize& size) {
  return {{"model_type", "clip_vision_model"}, {"hidden_size", size.hidden},
          {"intermediate_size", size.mlp},     {"num_hidden_layers", size.layers},
          {"num_attention_heads", size.heads}, {"num_channels", 3},
          {"image_size", size.image_size},     {"patch_size", size.patch},
          {"hidden_act", "quick_gelu"},        {"layer_norm_eps", 1e-5},
          {"attention_dropout", 0.0},          {"projection_dim", size.hidden},
          {"torch_dtype", "bfloat16"}};
}

Json fresh_image_processor(const VisionSize& size) {
  ClipImageConfig config;
  config.shortest_edge = size.image_size;
  config.crop_width = size.image_size;
  config.crop_height = size.image_size;
  Json made = clip_image_config_json(config);
  made["image_processor_type"] = "CLIPImageProcessor";
  made["processor_class"] = "LlavaProcessor";
  return made;
}

Json fresh_media_processor(const VisionSize& size) {
  return {{"processor_class", "LlavaProcessor"},
          {"image_token", "<image>"},
          {"patch_size", size.patch},
          {"num_additional_image_tokens", 1},
          {"vision_feature_select_strategy", "default"}};
}

std::string_view chatml_template() {
  return R"({%- if messages[0]['role'] != 'system' -%}
{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%}
)";
}

std::string media_chatml_template(const MediaMarks& marks, bool greets) {
  std::string parts;
  for (const auto& [type, mark] : marks) {
    parts +=
        fmt::format("{{%- {} part['type'] == '{}' -%}}\n{{{{- '{}' -}}}}\n", parts.empty() ? "if" : "elif", type, mark);
  }
  return fmt::format(R"({}{{%- for message in messages -%}}
{{{{- '<|im_start|>' + message['role'] + '\n' -}}}}
{{%- if message['content'] is string -%}}
{{{{- message['content'] -}}}}
{{%- else -%}}
{{%- for part in message['content'] -%}}
{}{{%- else -%}}
{{{{- part['text'] -}}}}
{{%- endif -%}}
{{%- endfor -%}}
{{%- endif -%}}
{{{{- '<|im_end|>\n' -}}}}
{{%- endfor -%}}
{})",
                     greets ? kGreeting : "", parts, kAnswerBegins);
}

std::string qwen2_vl_template() {
  return media_chatml_template({{"image", "<|vision_start|><|image_pad|><|vision_end|>"},
                                {"video", "<|vision_start|><|video_pad|><|vision_end|>"}});
}

std::string internvl_template() {
  return media_chatml_template({{"image", R"(<IMG_CONTEXT>\n)"}, {"video", R"(<video>\n)"}}, /*greets=*/false);
}

std::string_view llama3_template() {
  return R"({{- bos_token -}}
{%- for message in messages -%}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)";
}

std::string_view mistral_template() {
  return R"({{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{{- ' ' + message['content'] + eos_token -}}
{%- elif message['role'] == 'user' -%}
{%- if loop.index0 == 1 and messages[0]['role'] == 'system' -%}
{{- '[INST] ' + messages[0]['content'] + '\n\n' + message['content'] + ' [/INST]' -}}
{%- else -%}
{{- '[INST] ' + message['content'] + ' [/INST]' -}}
{%- endif -%}
{%- endif -%}
{%- endfor -%}
)";
}

std::string_view vicuna_template() {
  return R"({%- for message in messages -%}
{%- if message['role'] == 'user' -%}
{{- 'USER: ' -}}
{%- elif message['role'] == 'assistant' -%}
{{- 'ASSISTANT: ' -}}
{%- endif -%}
{%- if message['content'] is string -%}
{{- message['content'] -}}
{%- else -%}
{%- for part in message['content'] if part['type'] == 'image' -%}
{{- '<image>\n' -}}
{%- endfor -%}
{%- for part in message['content'] if part['type'] == 'text' -%}
{{- part['text'] -}}
{%- endfor -%}
{%- endif -%}
{{- eos_token if message['role'] == 'assistant' else ' ' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- 'ASSISTANT:' -}}
{%- endif -%}
)";
}

double text_spread(const HfConfig& config) {
  return config.at("text_config").number("initializer_range", config.number("initializer_range", 0.02));
}

}  // namespace lockstep
