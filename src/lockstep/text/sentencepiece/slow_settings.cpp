#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/json_keys.h"
#include "lockstep/text/sentencepiece/slow_tokens.h"

namespace lockstep {
namespace {

// Of the settings whose null means false, as Python reads them.
bool truth_key(const Json& config, const std::string& key, bool fallback, const std::string& where) {
  const auto found = config.find(key);
  return found != config.end() && found->is_null() ? false : flag_key(config, key, fallback, where);
}

SlowSettings::Kind kind_of(const Json& config, const std::string& where) {
  const auto found = config.find("tokenizer_class");
  if (found == config.end() || found->is_null()) return SlowSettings::Kind::kLlama;
  std::string name = text_key(config, "tokenizer_class", where);
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (name == "LlamaTokenizer") return SlowSettings::Kind::kLlama;
  if (name == "InternLM2Tokenizer") return SlowSettings::Kind::kInternLm2;
  throw checkpoint_error(
      fmt::format("{}: tokenizer_class \"{}\" is not supported with tokenizer.model alone", where, cut_text(name)),
      "supported: LlamaTokenizer, InternLM2Tokenizer; others are read from their tokenizer.json, which "
      "AutoTokenizer.from_pretrained(...).save_pretrained(...) of transformers writes");
}

bool is_neutral(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

// nbest_size and alpha only matter to sampling.
void refuse_library_settings(const Json& config, const std::string& where) {
  const auto found = config.find("sp_model_kwargs");
  if (found == config.end() || found->is_null()) return;
  if (!found->is_object()) {
    throw checkpoint_error(fmt::format("{}: sp_model_kwargs: expected an object, found {}", where, found->type_name()));
  }
  for (const auto& [key, value] : found->items()) {
    if (key == "nbest_size" || key == "alpha" || is_neutral(value)) continue;
    throw checkpoint_error(
        fmt::format("{}: sp_model_kwargs: \"{}\": expected nothing that changes what a text becomes, found {}", where,
                    cut_text(key), cut_text(value.dump())),
        "take it out; texts are always cut the same way");
  }
}

}  // namespace

SlowSettings read_slow_settings(const TokenizerFolder& folder) {
  SlowSettings out;
  const char* const name = "tokenizer_config.json";
  if (!folder.has(name)) return out;
  const Json config = folder.json(name);
  const std::string where = folder.path(name).string();
  if (!config.is_object()) {
    throw checkpoint_error(fmt::format("{}: expected an object, found {}", where, config.type_name()));
  }
  out.kind = kind_of(config, where);
  refuse_library_settings(config, where);
  if (truth_key(config, "split_special_tokens", false, where)) {
    throw checkpoint_error(where + ": split_special_tokens: expected false, found true",
                           "special tokens of a text are always found");
  }
  out.legacy = flag_key(config, "legacy", true, where) || out.kind == SlowSettings::Kind::kInternLm2;
  out.add_prefix_space = truth_key(config, "add_prefix_space", true, where);
  out.add_bos = truth_key(config, "add_bos_token", true, where);
  out.add_eos = truth_key(config, "add_eos_token", false, where);
  out.clean_up_spaces = truth_key(config, "clean_up_tokenization_spaces", false, where);
  return out;
}

}  // namespace lockstep
