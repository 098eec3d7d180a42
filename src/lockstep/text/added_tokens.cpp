#include "lockstep/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/text/json_keys.h"
#include "lockstep/text/limits.h"
#include "lockstep/text/white_space.h"

namespace lockstep {

AddedToken read_added_token(const Json& entry, const std::string& where) {
  AddedToken token;
  token.content = short_literal(text_key(entry, "content", where), "content", where);
  token.single_word = flag_key(entry, "single_word", false, where);
  token.lstrip = flag_key(entry, "lstrip", false, where);
  token.rstrip = flag_key(entry, "rstrip", false, where);
  token.special = flag_key(entry, "special", false, where);
  token.normalized = flag_key(entry, "normalized", !token.special, where);
  return token;
}

void WordFinder::add(std::string_view pattern, AddedToken token) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  for (const char c : pattern) {
    const uint64_t key = uint64_t{node} * 256 + static_cast<unsigned char>(c);
    const auto [place, is_new] = children_.emplace(key, static_cast<uint32_t>(accepts_.size()));
    if (is_new) accepts_.push_back(-1);
    node = place->second;
  }
  starts_[static_cast<unsigned char>(pattern[0])] = true;
  if (accepts_[node] < 0) accepts_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* WordFinder::longest_at(std::string_view text, size_t at, size_t& end) const {
  const AddedToken* found = nullptr;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto child = children_.find(uint64_t{node} * 256 + static_cast<unsigned char>(text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (accepts_[node] < 0) continue;
    found = &tokens_[static_cast<size_t>(accepts_[node])];
    end = i + 1;
  }
  return found;
}

std::vector<TokenSpan> WordFinder::cut(std::string_view text) const {
  std::vector<TokenSpan> out;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t match_end = at;
    const AddedToken* token = starts_[static_cast<unsigned char>(text[at])] ? longest_at(text, at, match_end) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = match_end;
    at = match_end;  // the search goes on behind the match, even where the match is then refused
    if (token->single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token->lstrip) begin = std::max(done, begin - white_space_at_end(text.substr(0, begin)));
    if (token->rstrip) end += white_space_at_start(text.substr(end));
    if (done < begin) out.push_back({done, begin});
    out.push_back({begin, end, token->id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size()});
  return out;
}

}  // namespace lockstep
