#include "lockstep/text/json_steps.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/text/json_keys.h"
#include "lockstep/text/regex.h"

namespace lockstep {
namespace {

const Json& part(const TokenizerFile& file, const std::string& key) {
  static const Json none;
  const auto found = file.rest->find(key);
  return found == file.rest->end() ? none : *found;
}

std::string place(const TokenizerFile& file, const std::string& key) { return file.path + ": " + key; }

}  // namespace

JsonSteps::JsonSteps(TokenizerFile file)
    : normalizer_(part(file, "normalizer"), place(file, "normalizer")),
      pre_tokenizer_(part(file, "pre_tokenizer"), place(file, "pre_tokenizer")),
      model_(file, pre_tokenizer_.byte_level()),
      post_processor_(part(file, "post_processor"), place(file, "post_processor")),
      decoder_(part(file, "decoder"), place(file, "decoder")),
      max_id_(model_.max_id()) {
  if (file.rest->contains("added_tokens")) {
    add_tokens(list_key(*file.rest, "added_tokens", file.path), place(file, "added_tokens"));
  }
  if (post_processor_.max_id() > max_id_) {
    throw checkpoint_error(fmt::format("{}: expected ids up to {} (the tokens that the file has), found {}",
                                       place(file, "post_processor"), max_id_, post_processor_.max_id()));
  }
}

// The id in the file is not read: as in Hugging Face, a word of the vocabulary keeps its id there and a new one gets
// the next free id.
void JsonSteps::add_tokens(const Json& entries, const std::string& where) {
  RegexBudget budget(0);  // each is normalised
  auto next_id = static_cast<int32_t>(model_.num_tokens());
  for (const Json& entry : entries) {
    AddedToken token = read_added_token(entry, where);
    if (token.content.empty()) continue;
    const auto known = model_.id_of(token.content);
    const auto added = added_ids_.find(token.content);
    token.id = added != added_ids_.end() ? added->second : known ? *known : next_id;
    next_id = std::max(next_id, token.id + 1);
    max_id_ = std::max(max_id_, token.id);
    added_ids_[token.content] = token.id;
    added_contents_[token.id] = token.content;
    if (token.special) special_contents_.insert(token.content);
    const std::string content = token.content;
    if (token.normalized) {
      normalized_finder_.add(normalizer_.apply(content), std::move(token));
    } else {
      raw_finder_.add(content, std::move(token));
    }
  }
}

void JsonSteps::encode_span(std::string_view text, bool at_start, bool continues, std::vector<int32_t>& out) const {
  const std::string normal =
      normalizer_.empty() ? std::string() : normalizer_.apply(std::string(text), !(continues && at_start));
  if (!normalizer_.empty()) text = normal;
  for (const TokenSpan& span : normalized_finder_.cut(text)) {
    if (span.id >= 0) {
      out.push_back(span.id);
      continue;
    }
    Pieces pieces;
    pieces.continues = continues;
    pieces.list.push_back({text.substr(span.begin, span.end - span.begin), at_start && span.begin == 0});
    pre_tokenizer_.apply(pieces);
    for (const Piece& piece : pieces.list) model_.tokenize(piece.text, out);
  }
}

std::vector<int32_t> JsonSteps::encode(std::string_view text, EncodeOptions options) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  for (const TokenSpan& span : raw_finder_.cut(text)) {
    if (span.id >= 0) {
      ids.push_back(span.id);
    } else {
      encode_span(text.substr(span.begin, span.end - span.begin), span.begin == 0, options.continues, ids);
    }
  }
  return options.add_special_tokens ? frame().around(std::move(ids)) : ids;
}

std::vector<std::string> JsonSteps::tokens(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> out;
  out.reserve(ids.size());
  for (const int32_t id : ids) {
    const std::string& token = token_of(id);
    if (!token.empty() && !(skip_special_tokens && is_special(token))) out.push_back(token);
  }
  return out;
}

std::string JsonSteps::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  return decoder_.decode(tokens(ids, skip_special_tokens));
}

std::optional<int32_t> JsonSteps::id_of(std::string_view token) const {
  const auto added = added_ids_.find(std::string(token));
  return added != added_ids_.end() ? std::optional(added->second) : model_.id_of(token);
}

const std::string& JsonSteps::token_of(int32_t id) const {
  const auto added = added_contents_.find(id);
  return added != added_contents_.end() ? added->second : model_.token_of(id);
}

}  // namespace lockstep
