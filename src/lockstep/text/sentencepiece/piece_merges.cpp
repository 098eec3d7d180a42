#include "lockstep/text/sentencepiece/piece_merges.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/text/sentencepiece/piece_normalizer.h"

namespace lockstep {
namespace {

constexpr size_t kMaxSquares =
    500'000'000;  // of the pieces' bytes, summed: a vocabulary of 256 thousand has 20 million
constexpr size_t kMaxPairs = size_t{8} << 20;  // a vocabulary of 256 thousand has one or two million

// By the first byte alone, as SentencePiece steps; cut at the end of the text.
size_t character_size(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  const size_t size = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  return std::min(size, text.size() - at);
}

uint32_t packed(std::string_view character) {
  uint32_t key = 0;
  for (const char c : character) key = key << 8 | static_cast<unsigned char>(c);
  return key;
}

bool can_merge(const PieceEntry& piece) { return piece.type == PieceType::kNormal || piece.type == PieceType::kUnused; }

}  // namespace

PieceMerges::PieceMerges(const PieceTable& table, const std::string& where) {
  bool any_unused = false;
  for (int32_t id = 0; id < table.size(); ++id) {
    const PieceEntry& piece = table.at(id);
    if (piece.type == PieceType::kUserDefined) user_defined_.add(piece.text, id);
    any_unused = any_unused || piece.type == PieceType::kUnused;
    ids_.push_back(id);
    sizes_.push_back(static_cast<uint16_t>(piece.text.size()));
  }
  add_characters(table);
  rank(table, pairs(table, where));
  if (!any_unused) return;
  for (const int32_t id : ids_) unused_.push_back(table.at(id).type == PieceType::kUnused);
}

// Every character of a piece that can be made is a symbol, and every piece of one character.
void PieceMerges::add_characters(const PieceTable& table) {
  for (int32_t id = 0; id < table.size(); ++id) {
    const std::string_view text = table.at(id).text;
    const bool made = can_merge(table.at(id)), stands = made || table.at(id).type == PieceType::kUserDefined;
    for (size_t at = 0; at < text.size();) {
      const size_t size = character_size(text, at);
      const std::string_view character = text.substr(at, size);
      at += size;
      if (stands && text.substr(at).starts_with(kPieceSpace)) joins_space_.insert(packed(character));
      if (!made && size != text.size()) continue;
      const auto [place, is_new] = characters_.emplace(packed(character), static_cast<int32_t>(ids_.size()));
      if (!is_new) continue;
      const auto known = table.find(character);
      if (known && can_merge(table.at(*known))) {
        place->second = *known;
        continue;
      }
      ids_.push_back(known.value_or(table.unknown()));
      sizes_.push_back(static_cast<uint16_t>(size));
    }
  }
  ids_.push_back(table.unknown());
  sizes_.push_back(0);
}

std::vector<PieceMerges::Pair> PieceMerges::pairs(const PieceTable& table, const std::string& where) const {
  const auto part = [&](std::string_view text) {
    if (text.size() == character_size(text, 0)) return symbol_of(text);
    const auto id = table.find(text);
    return id && can_merge(table.at(*id)) ? *id : -1;
  };
  std::vector<Pair> out;
  size_t squares = 0;
  for (int32_t id = 0; id < table.size(); ++id) {
    if (!can_merge(table.at(id))) continue;
    const std::string_view text = table.at(id).text;
    squares += text.size() * text.size();
    for (size_t at = character_size(text, 0); at < text.size(); at += character_size(text, at)) {
      const int32_t left = part(text.substr(0, at));
      const int32_t right = left < 0 ? -1 : part(text.substr(at));
      if (right >= 0) out.push_back({left, right, id});
    }
    if (out.size() > kMaxPairs || squares > kMaxSquares) {
      throw checkpoint_error(
          fmt::format("{}: the pieces are too many and too long: expected at most {} ways to make them, found more",
                      where, kMaxPairs));
    }
  }
  return out;
}

// Equal scores are equal ranks: the place in the text decides.
void PieceMerges::rank(const PieceTable& table, const std::vector<Pair>& pairs) {
  const auto score = [&](const Pair& pair) { return table.at(pair.result).score; };
  std::vector<float> scores;
  scores.reserve(pairs.size());
  for (const Pair& pair : pairs) scores.push_back(score(pair));
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  merges_ = MergeTable(pairs.size());
  for (const Pair& pair : pairs) {
    const auto place = std::lower_bound(scores.begin(), scores.end(), score(pair), std::greater<>());
    merges_.set(pair.left, pair.right, {static_cast<int32_t>(place - scores.begin()), pair.result});
  }
}

int32_t PieceMerges::symbol_of(std::string_view character) const {
  const auto found = characters_.find(packed(character));
  return found == characters_.end() ? static_cast<int32_t>(ids_.size()) - 1 : found->second;
}

std::vector<int32_t> PieceMerges::first_symbols(std::string_view text) const {
  std::vector<int32_t> symbols;
  symbols.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (!user_defined_.empty()) {
      if (const auto match = user_defined_.longest(text.substr(at)); match.size > 0) {
        symbols.push_back(match.id);
        at += match.size;
        continue;
      }
    }
    const size_t size = character_size(text, at);
    symbols.push_back(symbol_of(text.substr(at, size)));
    at += size;
  }
  return symbols;
}

// Of a piece that no text may be, its parts: those of the neighbours that were last seen to make it, anywhere.
void PieceMerges::undo_unused(std::vector<int32_t>& symbols) const {
  std::unordered_map<int32_t, std::pair<int32_t, int32_t>> parts;
  merge_all(merges_, symbols, [&](int32_t left, int32_t right, int32_t result) {
    if (unused_[static_cast<size_t>(result)]) parts.insert_or_assign(result, std::pair(left, right));
  });
  std::vector<int32_t> out, open;
  for (const int32_t symbol : symbols) {
    open.push_back(symbol);
    while (!open.empty()) {
      const int32_t last = open.back();
      open.pop_back();
      const auto found = parts.find(last);
      if (found == parts.end()) {
        out.push_back(last);
      } else {
        open.push_back(found->second.second);
        open.push_back(found->second.first);
      }
    }
  }
  symbols = std::move(out);
}

std::vector<PieceSpan> PieceMerges::cut(std::string_view text) const {
  std::vector<int32_t> symbols = first_symbols(text);
  if (unused_.empty()) {
    merge_all(merges_, symbols);
  } else {
    undo_unused(symbols);
  }
  std::vector<PieceSpan> out;
  out.reserve(symbols.size());
  size_t at = 0;
  for (const int32_t symbol : symbols) {
    const size_t known = sizes_[static_cast<size_t>(symbol)];
    const size_t size = known > 0 ? known : character_size(text, at);
    out.push_back({ids_[static_cast<size_t>(symbol)], size});
    at += size;
  }
  return out;
}

size_t PieceMerges::word_end(std::string_view text, size_t begin) const {
  if (!unused_.empty()) return text.size();  // what is undone is looked for in all of the text
  size_t at = begin;
  while (true) {
    at = text.find(kPieceSpace, at + 1);
    if (at == std::string_view::npos) return text.size();
    size_t before = at - 1;
    while (before > begin && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
    if (!joins_space_.contains(packed(text.substr(before, at - before)))) return at;
  }
}

}  // namespace lockstep
