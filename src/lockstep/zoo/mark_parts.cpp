#include "lockstep/zoo/mark_parts.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/data/sample.h"

namespace lockstep {
namespace {

/// The next mark from `begin`, and of what; npos when there is none.
std::pair<size_t, Modality> next_mark(std::string_view content, size_t begin, const MarkRules& rules) {
  std::pair<size_t, Modality> next{std::string_view::npos, Modality::kImage};
  for (const Modality kind : rules.kinds) {
    const size_t at = content.find(media_mark(kind), begin);
    if (at < next.first) next = {at, kind};
  }
  return next;
}

/// A mark usually stands on its own line. Where the template writes a line break of its own beside media, that of the
/// text belongs to the mark.
std::string_view without_line_break(std::string_view text, bool after_mark, bool before_mark) {
  if (after_mark && text.starts_with('\n')) text.remove_prefix(1);
  if (before_mark && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

/// No blank and no line break stands at `at`, but something does.
bool goes_on(std::string_view text, size_t at) {
  return at < text.size() && std::string_view(" \t\r\n").find(text[at]) == std::string_view::npos;
}

}  // namespace

Json typed_parts(std::string_view content, const MarkRules& rules) {
  Json parts = Json::array();
  for (size_t begin = 0;;) {
    const auto [at, kind] = next_mark(content, begin, rules);
    const bool found = at != std::string_view::npos;
    auto text = content.substr(begin, found ? at - begin : std::string_view::npos);
    if (rules.take_break) text = without_line_break(text, begin > 0, found);
    if (!text.empty() || (!found && parts.empty())) parts.push_back({{"type", "text"}, {"text", text}});
    if (!found) return parts;
    parts.push_back({{"type", modality_name(kind)}});
    begin = at + media_mark(kind).size();
  }
}

std::string front_on_own_lines(std::string text, size_t media) {
  const MarkRules all{.kinds = {kMediaKinds.begin(), kMediaKinds.end()}};
  for (size_t end = 0; media > 0; --media) {
    const auto [at, kind] = next_mark(text, end, all);
    if (at == std::string::npos) break;
    end = at + media_mark(kind).size();
    if (goes_on(text, end)) text.insert(end++, "\n");
  }
  return text;
}

std::string replaced(std::string text, std::string_view mark, const MediumRules& rules) {
  for (size_t at = text.find(mark); at != std::string::npos;) {
    const size_t next = at + mark.size();
    const std::string made = rules.placeholder + (rules.ends_line && goes_on(text, next) ? "\n" : "");
    text.replace(at, mark.size(), made);
    at = text.find(mark, at + made.size());
  }
  return text;
}

}  // namespace lockstep
