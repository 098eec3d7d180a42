#include "lockstep/text/sentencepiece/piece_normalizer.h"

#include "lockstep/text/limits.h"
#include "lockstep/text/utf8.h"

namespace lockstep {

PieceNormalizer::PieceNormalizer(const PieceNormalization& settings, const std::string& where)
    : charsmap_(settings.charsmap, where),
      add_prefix_(settings.add_dummy_prefix),
      remove_extra_(settings.remove_extra_whitespaces),
      space_(settings.escape_whitespaces ? kPieceSpace : " ") {}

PieceNormalizer::Step PieceNormalizer::step(std::string_view rest, const PrefixMatcher& symbols) const {
  if (const auto symbol = symbols.longest(rest); symbol.size > 0) return {rest.substr(0, symbol.size), symbol.size};
  if (const auto rule = charsmap_.longest(rest); rule.size > 0) return {rule.replacement, rule.size};
  const Utf8Step character = utf8_step(rest, 0);
  // A rule may end inside a character; what is left of it is replaced byte by byte.
  if (!character.valid) return {"\xEF\xBF\xBD", 1};
  return {rest.substr(0, character.size), character.size};
}

// Without a table only spaces change.
std::string PieceNormalizer::apply_simply(std::string_view text, bool has_prefix) const {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + space_.size());
  if (add_prefix_ && has_prefix) out += space_;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    out.append(text, at, end - at);
    if (end < text.size()) out += space_;
    at = end + 1;
  }
  return out;
}

std::string PieceNormalizer::apply(std::string_view text, const PrefixMatcher& symbols, bool has_prefix) const {
  if (text.empty()) return {};
  if (charsmap_.empty() && !remove_extra_) return apply_simply(text, has_prefix);
  const size_t given = text.size();
  while (remove_extra_ && !text.empty()) {
    const Step first = step(text, symbols);
    if (first.text != " ") break;
    text.remove_prefix(first.size);
  }
  if (text.empty()) return {};
  std::string out;
  out.reserve(text.size() + text.size() / 2 + space_.size());
  if (add_prefix_ && has_prefix) out += space_;
  bool after_space = remove_extra_;
  while (!text.empty()) {
    auto [part, size] = step(text, symbols);
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    for (const char c : part) {
      if (c == ' ') {
        out += space_;
      } else {
        out += c;
      }
    }
    if (!part.empty()) after_space = remove_extra_ && part.ends_with(' ');
    refuse_growth(out.size(), given);
    text.remove_prefix(size);
  }
  while (remove_extra_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
  return out;
}

}  // namespace lockstep
