#include "lockstep/text/legacy_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/json_keys.h"
#include "lockstep/text/settings_tokens.h"

namespace lockstep {
namespace {

constexpr const char* kPattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";

void read_vocab(const std::filesystem::path& path, TokenizerFile& file) {
  const auto vocab = parse_json_or_discard(read_text(path));
  if (!vocab.is_object()) throw checkpoint_error(fmt::format("{}: expected an object of token to id", path.string()));
  for (const auto& [token, id] : vocab.items()) {
    file.vocab.emplace_back(token, id_of(id, fmt::format("{}: \"{}\"", path.string(), cut_text(token))));
  }
}

void read_merges(const std::filesystem::path& path, TokenizerFile& file) {
  for (const std::string& line : split(read_text(path), '\n')) {
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == std::string::npos) {
      throw checkpoint_error(fmt::format("{}: expected \"a b\", found \"{}\"", path.string(), cut_text(line)));
    }
    file.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
}

}  // namespace

bool is_legacy_qwen2(const TokenizerFolder& folder) {
  if (!folder.has("vocab.json") || !folder.has("merges.txt") || !folder.has("tokenizer_config.json")) return false;
  const Json config = folder.json("tokenizer_config.json");
  const auto found = config.is_object() ? config.find("tokenizer_class") : config.end();
  if (found == config.end() || !found->is_string()) return false;
  const std::string name = found->get<std::string>();
  return name.find("Qwen2") != std::string::npos || name.find("MiniCPM") != std::string::npos;
}

TokenizerFile read_legacy_qwen2(const TokenizerFolder& folder) {
  TokenizerFile file;
  file.path = folder.path("vocab.json").string();
  read_vocab(folder.path("vocab.json"), file);
  read_merges(folder.path("merges.txt"), file);
  Json rest;
  rest["added_tokens"] = Json::array();
  rest["normalizer"] = {{"type", "NFC"}};
  rest["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       Json::array(
           {{{"type", "Split"}, {"pattern", {{"Regex", kPattern}}}, {"behavior", "Isolated"}, {"invert", false}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}})}};
  rest["post_processor"] = nullptr;
  rest["decoder"] = {{"type", "ByteLevel"}};
  rest["model"] = {{"type", "BPE"}};
  file.rest = std::make_unique<Json>(std::move(rest));
  add_tokens_of_settings(folder, file);
  return file;
}

}  // namespace lockstep
