#include "lockstep/zoo/token_rows.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {

constexpr int64_t kRounding = 128;
constexpr const char* kSize = "vocab_size";

int64_t vocabulary(const HfConfig& config) { return family_of(config).build(config).dims.vocab; }

/// Sets every size of the text's vocabulary, wherever families write it, that is `from`; whether there was any.
bool resize(Json& config, int64_t from, int64_t to) {
  bool any = false;
  const auto set = [&](Json* part) {
    if (part == nullptr || !part->is_object() || part->value(kSize, Json()) != from) return;
    (*part)[kSize] = to;
    any = true;
  };
  const auto inner = [](Json* of, const char* key) {
    return of != nullptr && of->is_object() && of->contains(key) ? &of->at(key) : nullptr;
  };
  set(&config);
  for (const char* key : {"text_config", "llm_config"}) set(inner(&config, key));
  set(inner(inner(&config, "thinker_config"), "text_config"));
  return any;
}

/// Of words, by the names that the families' authors give them.
bool is_table(const std::string& name) {
  static constexpr std::array kEnds = {"embed_tokens.weight", "tok_embeddings.weight", "lm_head.weight",
                                       "output.weight"};
  return std::ranges::any_of(kEnds, [&](const char* end) { return name.ends_with(end); });
}

bool keeps_rows(const ModelPlace& place) { return place.new_tokens.empty() && place.token_rows == 0; }

/// Whoever trained an adapter with tables of its own had the model's tables resized to theirs.
int64_t rows_for(const ModelPlace& place, int64_t rows) {
  const int64_t tokens = place.new_tokens.empty() ? 0 : Tokenizer::load(tokenizer_of(place)).vocab_size();
  if (place.token_rows > 0 && place.token_rows >= tokens) return place.token_rows;
  return tokens <= rows ? rows : (tokens + kRounding - 1) / kRounding * kRounding;
}

}  // namespace

HfConfig with_token_rows(const HfConfig& config) {
  if (keeps_rows(config.place())) return config;
  const int64_t rows = vocabulary(config), wanted = rows_for(config.place(), rows);
  if (wanted == rows) return config;
  Json keys = config.json();
  if (!resize(keys, rows, wanted)) {
    // One that leaves the size to its family's default.
    for (const char* key : {"text_config", "llm_config"}) {
      if (keys.contains(key) && keys.at(key).is_object()) keys[key][kSize] = wanted;
    }
    if (!keys.contains("text_config") && !keys.contains("llm_config")) keys[kSize] = wanted;
  }
  const bool asked = wanted > rows && !config.place().new_tokens.empty();
  const std::string told =
      !asked && config.place().token_rows == wanted
          ? fmt::format("the tables of words get {} rows, of {}, as those of its adapter have", wanted, rows)
          : "";
  HfConfig resized = told.empty() ? config.with(keys) : config.with(keys, told);
  if (vocabulary(resized) == wanted) return resized;
  throw checkpoint_error(fmt::format("{}: {}: expected {} to say that the vocabulary has {} rows, which must become {}",
                                     config.place().new_tokens.empty() ? "--adapters" : "--new_special_tokens",
                                     config.where(), kSize, rows, wanted),
                         fmt::format("write {} into config.json, beside the other sizes of the language model", kSize));
}

void add_token_rows(Weights& weights, const Family& family, const HfConfig& config) {
  if (keeps_rows(config.place())) return;
  ModelPlace before = config.place();
  before.new_tokens.clear();
  before.token_rows = 0;
  const int64_t rows = vocabulary(load_config(before)), wanted = family.build(config).dims.vocab;
  if (rows == wanted) return;
  for (const auto& spec : weights.specs()) {
    if (spec.shape.size() == 2 && spec.shape[0] == rows && is_table(spec.name)) weights.set_rows(spec.name, wanted);
  }
}

}  // namespace lockstep
