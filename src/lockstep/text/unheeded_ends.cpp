#include "lockstep/text/unheeded_ends.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"

namespace lockstep {

std::string unheeded_ends(const TokenizerFolder& folder, const Tokenizer& tokenizer) {
  if (!folder.has("tokenizer.json") || !folder.has("tokenizer_config.json")) return "";
  const Json config = folder.json("tokenizer_config.json");
  if (!config.is_object()) return "";
  const Json name = config.value("tokenizer_class", Json());
  if (!name.is_string() || !name.get<std::string>().starts_with("LlamaToken")) return "";
  std::vector<std::string> contradictions;
  const auto compare = [&](const char* key, const char* token, const std::vector<int32_t>& put) {
    const Json said = config.value(key, Json());
    const auto text = tokenizer.special(token);
    const auto id = text ? tokenizer.id_of(*text) : std::nullopt;
    if (!said.is_boolean() || !id) return;
    const bool there = std::ranges::find(put, *id) != put.end();
    if (there == said.get<bool>()) return;
    contradictions.push_back(fmt::format("{} is {}, and its post_processor {} {}", key, said.get<bool>(),
                                         there ? "writes" : "does not write", cut_text(*text)));
  };
  compare("add_bos_token", "bos_token", tokenizer.frame().before);
  compare("add_eos_token", "eos_token", tokenizer.frame().after);
  if (contradictions.empty()) return "";
  return fmt::format(
      "tokenizer.json and tokenizer_config.json contradict each other: {}; the post_processor counts, as in "
      "transformers 5 "
      "(LlamaTokenizerFast of transformers 4 obeyed the setting)",
      join(contradictions, "; "));
}

}  // namespace lockstep
