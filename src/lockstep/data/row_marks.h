// Which medium of a row stands at which mark of its texts.
// Used by RowMedia alone.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/sample.h"

namespace lockstep {

inline size_t count_marks(std::string_view text, std::string_view mark) {
  size_t count = 0;
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + mark.size())) ++count;
  return count;
}

/// What a row says of one kind of medium.
template <typename Medium>
struct Marked {
  std::string_view mark;
  const char* name;                                 // "image"
  const std::vector<std::optional<Medium>>& marks;  // the medium that stands at a mark, or the row's next one
  std::vector<Medium> loose;                        // the row's own, in order
};

/// Media in the order of the marks, those without a mark before the marks of the first user message.
template <typename Medium>
std::vector<Medium> resolved(const Marked<Medium>& kind, std::vector<Message>& messages, const std::string& where) {
  const auto open = static_cast<size_t>(std::count(kind.marks.begin(), kind.marks.end(), std::nullopt));
  if (open > kind.loose.size()) {
    throw data_error(
        fmt::format("{}: expected {} {} for each {} mark, found {} marks and {} {}s", where,
                    *kind.name == 'v' ? "a" : "an", kind.name, kind.mark, kind.marks.size(),
                    kind.marks.size() - open + kind.loose.size(), kind.name),
        fmt::format("write \"{}s\": [...] with one {} a mark", kind.name, *kind.name == 'v' ? "list" : "path"));
  }
  // What is left over stands before the first question, hence after the marks of a system message before it.
  const size_t extra = kind.loose.size() - open;
  const auto user = std::find_if(messages.begin(), messages.end(), [](const Message& m) { return m.role == "user"; });
  if (extra > 0 && user == messages.end()) {
    throw data_error(fmt::format("{}: expected a user message to hold {} {}s, found none", where, extra, kind.name));
  }
  size_t marks_before = 0;
  for (auto it = messages.begin(); extra > 0 && it != user; ++it) marks_before += count_marks(it->content, kind.mark);
  std::vector<Medium> media;
  size_t next = 0;
  for (size_t i = 0; i <= kind.marks.size(); ++i) {
    if (extra > 0 && i == marks_before) {
      // The row's media keep their order: those without a mark come first.
      for (size_t k = 0; k < extra; ++k) media.push_back(kind.loose[next++]);
    }
    if (i < kind.marks.size()) media.push_back(kind.marks[i] ? *kind.marks[i] : kind.loose[next++]);
  }
  for (size_t i = 0; i < extra; ++i) user->content.insert(0, kind.mark);
  if (extra > 0) user->media_in_front += extra;
  return media;
}

}  // namespace lockstep
