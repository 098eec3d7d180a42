// Families that read text alone: a decoder of Llama's kind under a name, a chat template and keys of its own.
//
// Example:
//   Family qwen2_family() {
//     return text_family({.name = "qwen2", .architecture = "Qwen2ForCausalLM", .chat_template = chatml_template(), …});
//   }
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {

struct TextFamily {
  std::string name;                // also the model_type, by which read_text_config knows what is usual
  std::string architecture;        // of config.json
  std::string_view chat_template;  // of fresh checkpoints; it must outlive the family
  /// What the family's config.json has beside, or in place of, what fresh_text_config writes.
  std::function<void(Json& config, const TextSize& size)> finish_fresh;
};

Family text_family(const TextFamily& text);

}  // namespace lockstep
