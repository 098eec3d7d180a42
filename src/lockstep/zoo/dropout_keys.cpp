#include "lockstep/zoo/dropout_keys.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

/// As transformers and the families' own code call them.
constexpr std::array<std::string_view, 17> kKeys{
    "attention_dropout", "attn_dropout",        "attn_pdrop",         "attention_probs_dropout_prob",
    "hidden_dropout",    "hidden_dropout_prob", "embd_pdrop",         "resid_pdrop",
    "embedding_dropout", "embed_dropout",       "resid_dropout",      "projection_dropout",
    "dropout",           "dropout_rate",        "activation_dropout", "drop_path_rate",
    "encoder_layerdrop"};

void collect(const Json& part, const std::string& path, std::vector<std::string>& out) {
  for (const auto& [key, value] : part.items()) {
    const std::string name = path.empty() ? key : path + "." + key;
    if (value.is_object()) {
      collect(value, name, out);
    } else if (value.is_number() && value.get<double>() > 0 && std::ranges::find(kKeys, key) != kKeys.end()) {
      out.push_back(fmt::format("{} {:g}", name, value.get<double>()));
    }
  }
}

}  // namespace

std::vector<std::string> dropout_keys(const HfConfig& config) {
  std::vector<std::string> out;
  if (config.json().is_object()) collect(config.json(), "", out);
  return out;
}

}  // namespace lockstep
