#include "lockstep/model/config_guess.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

struct Integer {
  std::string path, name;
  int64_t value;
};

void collect(const Json& node, const std::string& path, std::vector<Integer>& out) {
  for (const auto& [name, value] : node.items()) {
    if (value.is_number_integer()) out.push_back({path + name, name, value.get<int64_t>()});
    if (value.is_object()) collect(value, path + name + ".", out);
  }
}

bool contains_any(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

/// The sub-config that a tensor belongs to: "vision_config.", "text_config." or "" (flat).
std::string scope_of(const Json& config, const std::string& key) {
  const bool vision = contains_any(key, {"vision", "visual", "vpm.", "patch_embed"});
  if (vision && config.contains("vision_config")) return "vision_config.";
  return config.contains("text_config") ? "text_config." : "";
}

/// What usually gives this dimension, best first.
std::vector<std::string> usual_names(const std::string& key, size_t dim) {
  std::vector<std::string> names;
  if (contains_any(key, {"embed_tokens", "lm_head"}) && dim == 0) names = {"vocab_size"};
  const bool widens = contains_any(key, {"gate_proj", "up_proj", "fc1"});
  if ((widens && dim == 0) || (contains_any(key, {"down_proj", "fc2"}) && dim == 1)) names = {"intermediate_size"};
  if (contains_any(key, {"patch_embedding"}) && dim >= 2) names = {"patch_size"};
  names.emplace_back("hidden_size");
  return names;
}

std::string head_product(const std::vector<Integer>& integers, const std::string& scope, const std::string& key,
                         int64_t size) {
  const auto value = [&](const std::string& name) {
    for (const auto& one : integers) {
      if (one.path == scope + name) return one.value;
    }
    return int64_t{0};
  };
  const bool kv = contains_any(key, {"k_proj", "v_proj"});
  const int64_t heads = value("num_attention_heads"), kv_heads = value("num_key_value_heads");
  const int64_t head_dim = value("head_dim") > 0 ? value("head_dim") : heads > 0 ? value("hidden_size") / heads : 0;
  const std::string size_name = value("head_dim") > 0 ? "head_dim" : "(hidden_size / num_attention_heads)";
  if (kv && kv_heads > 0 && kv_heads * head_dim == size) return scope + "num_key_value_heads x " + size_name;
  if (heads * head_dim == size) return scope + "num_attention_heads x " + size_name;
  return "";
}

}  // namespace

std::string config_key_of(const Json& config, const std::string& key, size_t dim, int64_t size) {
  if (!config.is_object()) return "";
  std::vector<Integer> integers;
  collect(config, "", integers);
  const std::string scope = scope_of(config, key);
  const bool from_heads = (contains_any(key, {"q_proj", "k_proj", "v_proj"}) && dim == 0) ||
                          (contains_any(key, {"o_proj", "out_proj"}) && dim == 1);
  if (from_heads) {
    if (const std::string product = head_product(integers, scope, key, size); !product.empty()) {
      return "config.json " + product;
    }
  }
  for (const auto& name : usual_names(key, dim)) {
    for (const auto& one : integers) {
      if (one.value == size && one.path == scope + name) return "config.json " + one.path;
    }
  }
  for (const bool in_scope : {true, false}) {
    for (const auto& one : integers) {
      if (one.value == size && one.path.starts_with(scope) == in_scope) return "config.json " + one.path;
    }
  }
  return "";
}

}  // namespace lockstep
