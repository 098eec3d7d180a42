#include "lockstep/text/sentencepiece/piece_steps.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/text/normalizer.h"
#include "lockstep/text/sentencepiece/piece_stream.h"
#include "lockstep/text/utf8.h"
#include "lockstep/text/white_space.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// What Python's str.strip() takes away.
bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text, 0);
    if (!is_python_space(step.code_point)) break;
    text.remove_prefix(step.size);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_python_space(utf8_step(text, at).code_point)) break;
    text = text.substr(0, at);
  }
  return text;
}

PieceModelFile model_of(const TokenizerFolder& folder, const SlowSettings& settings) {
  PieceModelFile file = read_piece_model(folder.path("tokenizer.model"));
  if (!settings.legacy) file.normalization.add_dummy_prefix = false;  // the tokenizer puts its own
  return file;
}

std::vector<int32_t> special_ids(bool wanted, const std::string& name, const SlowTokens& tokens,
                                 const PieceTable& table, const TokenizerFolder& folder) {
  if (!wanted) return {};
  const auto found = tokens.named.find(name);
  if (found == tokens.named.end()) {
    throw checkpoint_error(fmt::format("{}: {} is null, and add_{} asks for it with every text",
                                       folder.path("tokenizer_config.json").string(), name, name),
                           fmt::format("set add_{} to false, or name the token", name));
  }
  return {tokens.id_of(found->second, table)};
}

}  // namespace

bool has_piece_model(const TokenizerFolder& folder) {
  return !folder.has("tokenizer.json") && folder.has("tokenizer.model");
}

PieceSteps::PieceSteps(const TokenizerFolder& folder)
    : settings_(read_slow_settings(folder)),
      model_(model_of(folder, settings_)),
      tokens_(read_slow_tokens(folder, settings_, model_.table())) {
  const PieceTable& table = model_.table();
  for (const auto& [id, token] : tokens_.by_id) finder_.add(token.content, {.content = token.content, .id = id});
  for (const auto& [content, id] : tokens_.ids) {
    longest_added_ = std::max(longest_added_, content.size());
    const auto piece = table.find(content);
    if (!piece || *piece == id) continue;
    for (int32_t i = static_cast<int32_t>(ids_of_pieces_.size()); i < table.size(); ++i) ids_of_pieces_.push_back(i);
    ids_of_pieces_[static_cast<size_t>(*piece)] = id;
  }
  frame_.before = special_ids(settings_.add_bos, "bos_token", tokens_, table, folder);
  frame_.after = special_ids(settings_.add_eos, "eos_token", tokens_, table, folder);
  if (settings_.legacy) return;
  const auto unknown = tokens_.named.find("unk_token");
  if (unknown == tokens_.named.end()) {
    throw checkpoint_error(fmt::format("{}: unk_token: expected a token where \"legacy\" is false, found null",
                                       folder.path("tokenizer_config.json").string()));
  }
  PieceIds pieces;
  model_.encode(unknown->second, false, pieces);
  unknown_pieces_ = pieces.ids.size();
}

const AddedToken* PieceSteps::added(std::string_view text) const {
  if (text.empty() || text.size() > longest_added_) return nullptr;
  const auto found = tokens_.ids.find(std::string(text));
  return found == tokens_.ids.end() ? nullptr : &tokens_.by_id.at(found->second);
}

// The rules of PreTrainedTokenizer.tokenize, which differ from those of tokenizer.json: only the neighbouring parts are
// stripped, only a space ends a word, and a token that is none for that joins the part beside it.
PieceSteps::Parts PieceSteps::split(std::string_view text) const {
  Parts parts;
  for (const TokenSpan& span : finder_.cut(text)) parts.list.push_back(text.substr(span.begin, span.end - span.begin));
  const auto joined = [&](std::string_view left, std::string_view right) -> std::string_view {
    return parts.made.emplace_back(std::string(left) + std::string(right));
  };
  for (size_t i = 0; i < parts.list.size(); ++i) {
    const AddedToken* const token = added(parts.list[i]);
    if (token == nullptr) continue;
    const std::string_view left = i > 0 ? parts.list[i - 1] : "";
    const std::string_view right = i + 1 < parts.list.size() ? parts.list[i + 1] : "";
    if (token->rstrip && !right.empty()) parts.list[i + 1] = strip_left(right);
    if (token->lstrip && !left.empty()) parts.list[i - 1] = strip_right(left);
    if (!token->single_word) continue;
    if (!left.empty() && left.back() != ' ') {
      parts.list[i - 1] = joined(parts.list[i - 1], parts.list[i]);
    } else if (!right.empty() && right.front() != ' ') {
      parts.list[i + 1] = joined(parts.list[i], parts.list[i + 1]);
    } else {
      continue;
    }
    parts.list[i] = {};
  }
  return parts;
}

// Without `legacy` the model puts no space in front, and would drop one that stands there: the unknown token's text goes
// before such a text, and is taken off again.
void PieceSteps::encode_part(std::string_view text, bool has_prefix, PieceIds& out) const {
  PieceIds pieces;
  size_t begin = 0;
  if (!settings_.legacy && (text.starts_with(' ') || text.starts_with(kPieceSpace))) {
    model_.encode(tokens_.named.find("unk_token")->second + std::string(text), false, pieces);
    if (pieces.ids.size() >= unknown_pieces_) begin = unknown_pieces_;
  } else {
    model_.encode(text, has_prefix, pieces);
  }
  for (auto& unknown : pieces.unknown) {
    if (unknown.at >= begin) out.unknown.push_back({unknown.at - begin + out.ids.size(), std::move(unknown.text)});
  }
  for (size_t i = begin; i < pieces.ids.size(); ++i) {
    const int32_t id = pieces.ids[i];
    out.ids.push_back(ids_of_pieces_.empty() ? id : ids_of_pieces_[static_cast<size_t>(id)]);
  }
}

// Without `legacy` a space that nothing but a special token follows is none of the text.
bool PieceSteps::begins_with_lone_space(const PieceIds& pieces) const {
  if (pieces.ids.size() < 2) return false;
  const auto text = [&](size_t at) {
    for (const auto& unknown : pieces.unknown) {
      if (unknown.at >= at) return unknown.at == at ? unknown.text : token_of(pieces.ids[at]);
    }
    return token_of(pieces.ids[at]);
  };
  return text(0) == kPieceSpace && tokens_.special.contains(text(1));
}

std::vector<int32_t> PieceSteps::encode(std::string_view text, EncodeOptions options) const {
  std::string prefixed;
  if (!settings_.legacy && !text.empty()) {
    prefixed = settings_.add_prefix_space && !options.continues ? kPieceSpace : "";
    prefixed += replace_all(text, kPieceSpace, " ");
    text = prefixed;
  }
  PieceIds pieces;
  const Parts parts = split(text);
  for (size_t i = 0; i < parts.list.size(); ++i) {
    if (const AddedToken* const token = added(parts.list[i])) {
      pieces.ids.push_back(token->id);
    } else if (!parts.list[i].empty()) {
      encode_part(parts.list[i], i > 0 || !options.continues, pieces);
    }
  }
  const bool drops_first = !settings_.legacy && begins_with_lone_space(pieces);
  // A run of unknown characters may be an added token, or a piece that no merges make.
  for (const auto& unknown : pieces.unknown) pieces.ids[unknown.at] = tokens_.id_of(unknown.text, model_.table());
  std::vector<int32_t> ids = std::move(pieces.ids);
  if (drops_first) ids.erase(ids.begin());
  return options.add_special_tokens ? frame_.around(std::move(ids)) : ids;
}

std::string PieceSteps::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  PieceStream stream(*this, skip_special_tokens);
  std::string out;
  for (const int32_t id : ids) out += stream.push(id);
  return out + stream.finish();
}

std::optional<int32_t> PieceSteps::id_of(std::string_view token) const {
  const auto found = tokens_.ids.find(std::string(token));
  return found != tokens_.ids.end() ? std::optional(found->second) : model_.table().find(token);
}

const std::string& PieceSteps::token_of(int32_t id) const {
  static const std::string none;
  const auto found = tokens_.by_id.find(id);
  if (found != tokens_.by_id.end()) return found->second.content;
  return model_.table().has(id) ? model_.table().at(id).text : none;
}

}  // namespace lockstep
