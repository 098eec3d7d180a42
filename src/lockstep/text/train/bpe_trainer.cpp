#include "lockstep/text/train/bpe_trainer.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/text/byte_level.h"
#include "lockstep/text/normalizer.h"
#include "lockstep/text/regex.h"
#include "lockstep/text/train/bpe_learner.h"
#include "lockstep/text/utf8.h"

namespace lockstep {
namespace {

constexpr const char* kSpace = "\u2581";
constexpr const char* kQwenWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size();) {
    const size_t size = utf8_step(text, i).size;
    out.emplace_back(text.substr(i, size));
    i += size;
  }
  return out;
}

using WordCounts = std::map<std::string, int64_t>;

WordCounts byte_level_words(const std::string& corpus) {
  const std::string text = Normalizer(Json{{"type", "NFC"}}, "NFC").apply(corpus);
  WordCounts counts;
  for (const auto& [begin, end] : Regex(kQwenWords, "word pattern").find_all(text)) {
    ++counts[bytes_to_alphabet(std::string_view(text).substr(begin, end - begin))];
  }
  return counts;
}

WordCounts sentence_piece_words(const std::string& text) {
  WordCounts counts;
  std::string word = kSpace;
  const auto end_word = [&] {
    if (word != kSpace) ++counts[word];
    word = kSpace;
  };
  for (const char c : text) {
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      end_word();
    } else {
      word += c;
    }
  }
  end_word();
  return counts;
}

std::vector<std::string> byte_alphabet() {
  std::vector<std::string> out;
  out.reserve(256);
  for (int byte = 0; byte < 256; ++byte) out.push_back(bytes_to_alphabet(std::string(1, static_cast<char>(byte))));
  std::sort(out.begin(), out.end());
  return out;
}

/// Control tokens, the bytes, then characters: printable ASCII, and the corpus's own, frequent ones first while there
/// is room.
std::vector<std::string> sentence_piece_base(const WordCounts& words, size_t room) {
  std::vector<std::string> out{"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) out.push_back(fmt::format("<0x{:02X}>", byte));
  out.emplace_back(kSpace);
  for (char c = '!'; c <= '~'; ++c) out.emplace_back(1, c);
  std::map<std::string, int64_t> counts;
  for (const auto& [word, count] : words) {
    for (const auto& character : characters(word)) counts[character] += count;
  }
  for (const auto& known : out) counts.erase(known);
  std::vector<std::pair<int64_t, std::string>> ranked;
  ranked.reserve(counts.size());
  for (const auto& [character, count] : counts) ranked.emplace_back(-count, character);
  std::sort(ranked.begin(), ranked.end());
  for (const auto& [negative, character] : ranked) {
    if (out.size() < room) out.push_back(character);
  }
  return out;
}

BpeLearner learn(const WordCounts& words, std::vector<std::string> base, int64_t size) {
  std::map<std::string, int32_t> ids;
  for (size_t i = 0; i < base.size(); ++i) ids.emplace(base[i], static_cast<int32_t>(i));
  BpeLearner learner(std::move(base));
  for (const auto& [word, count] : words) {
    std::vector<int32_t> spelled;
    for (const auto& character : characters(word)) {
      const auto found = ids.find(character);
      if (found != ids.end()) {
        spelled.push_back(found->second);
      } else {  // no room for it: it stays bytes, and nothing merges across
        learner.add_word(std::move(spelled), count);
        spelled.clear();
      }
    }
    learner.add_word(std::move(spelled), count);
  }
  learner.learn(size);
  return learner;
}

Json added_token(const std::string& content, int64_t id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

Json bos_template(const std::string& bos, int64_t id) {
  const auto token = [&](int type) { return Json{{"SpecialToken", {{"id", bos}, {"type_id", type}}}}; };
  const auto text = [&](const char* name, int type) { return Json{{"Sequence", {{"id", name}, {"type_id", type}}}}; };
  Json ids = {{"id", bos}, {"ids", Json::array({id})}, {"tokens", Json::array({bos})}};
  Json special = Json::object();
  special[bos] = std::move(ids);
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({token(0), text("A", 0)})},
          {"pair", Json::array({token(0), text("A", 0), token(1), text("B", 1)})},
          {"special_tokens", std::move(special)}};
}

/// Normalizer, pre-tokenizer and decoder of the kind.
void put_parts(Json& file, BpeKind kind) {
  const auto level = [](bool prefix, bool trim) {
    return Json{{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", trim}, {"use_regex", false}};
  };
  if (kind == BpeKind::kByteLevel) {
    const Json cut = {
        {"type", "Split"}, {"pattern", {{"Regex", kQwenWords}}}, {"behavior", "Isolated"}, {"invert", false}};
    file["normalizer"] = {{"type", "NFC"}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({cut, level(false, false)})}};
    file["decoder"] = level(false, false);
    return;
  }
  const auto replace = [](const char* from, const char* to) {
    return Json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  const Json prepend = {{"type", "Prepend"}, {"prepend", kSpace}};
  const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array({prepend, replace(" ", kSpace)})}};
  file["pre_tokenizer"] = nullptr;
  file["decoder"] = {
      {"type", "Sequence"},
      {"decoders", Json::array({replace(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}, strip})}};
}

Json model_part(const BpeLearner& learner, BpeKind kind) {
  const bool pieces = kind == BpeKind::kSentencePiece;
  Json vocab = Json::object(), merges = Json::array();
  int64_t id = 0;
  for (const auto& token : learner.tokens()) vocab[token] = id++;
  const auto token = [&](int32_t at) { return learner.tokens()[static_cast<size_t>(at)]; };
  for (const auto& [left, right] : learner.merges()) merges.push_back(Json::array({token(left), token(right)}));
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", pieces ? Json("<unk>") : Json(nullptr)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", pieces},
          {"byte_fallback", pieces},
          {"ignore_merges", false},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

std::vector<std::pair<std::string, int64_t>> added_tokens(const BpeTrainerOptions& options, int64_t first_free) {
  std::vector<std::pair<std::string, int64_t>> out;
  if (options.kind == BpeKind::kSentencePiece) out = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (const auto& name : options.special_tokens) out.emplace_back(name, first_free++);
  return out;
}

std::string pretty(const Json& value) { return value.dump(2) + "\n"; }

}  // namespace

FreshTokenizer train_tokenizer(std::string_view corpus, const BpeTrainerOptions& options) {
  const bool pieces = options.kind == BpeKind::kSentencePiece;
  const std::string text = repair_utf8(corpus);
  const int64_t learnt_size = options.vocab_size - static_cast<int64_t>(options.special_tokens.size());
  const WordCounts words = pieces ? sentence_piece_words(text) : byte_level_words(text);
  // A third of the room behind the bytes may go to rare characters of the corpus, the rest to merges.
  const auto room = static_cast<size_t>(std::max<int64_t>(0, 354 + (learnt_size - 354) / 3));
  std::vector<std::string> base = pieces ? sentence_piece_base(words, room) : byte_alphabet();
  const auto least = static_cast<int64_t>(base.size() + options.special_tokens.size());
  if (options.vocab_size < least) {
    throw usage_error(fmt::format("vocab_size {}: expected at least {} ({} bytes and characters, {} special tokens)",
                                  options.vocab_size, least, base.size(), options.special_tokens.size()));
  }
  const BpeLearner learner = learn(words, std::move(base), learnt_size);
  const auto added = added_tokens(options, static_cast<int64_t>(learner.tokens().size()));

  Json file = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", Json::array()}};
  Json decoder_table = Json::object();
  int64_t bos_id = -1;
  for (const auto& [name, id] : added) {
    Json token = added_token(name, id);
    file["added_tokens"].push_back(token);
    token.erase("id");
    decoder_table[std::to_string(id)] = token;
    if (name == options.bos) bos_id = id;
  }
  put_parts(file, options.kind);
  file["post_processor"] =
      bos_id >= 0 ? bos_template(options.bos, bos_id)
      : pieces
          ? Json(nullptr)
          : Json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  file["model"] = model_part(learner, options.kind);

  Json config = {{"add_bos_token", bos_id >= 0},
                 {"added_tokens_decoder", decoder_table},
                 {"clean_up_tokenization_spaces", false},
                 {"model_max_length", 1'000'000},
                 {"tokenizer_class", pieces || bos_id >= 0 ? "PreTrainedTokenizerFast" : "Qwen2Tokenizer"}};
  Json map = Json::object();
  const auto name_token = [&](const char* key, const std::string& name) {
    if (!name.empty()) map[key] = config[key] = name;
  };
  name_token("bos_token", options.bos);
  name_token("eos_token", options.eos);
  name_token("pad_token", options.pad);
  name_token("unk_token", pieces ? "<unk>" : "");
  return {.files = {{"tokenizer.json", pretty(file)},
                    {"tokenizer_config.json", pretty(config)},
                    {"special_tokens_map.json", pretty(map)}},
          .size = static_cast<int64_t>(learner.tokens().size() + options.special_tokens.size())};
}

}  // namespace lockstep
