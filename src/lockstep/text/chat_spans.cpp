#include "lockstep/text/chat_spans.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Range {
  size_t begin = 0, end = 0;
};

/// What is left of what may be rendered.
class Allowance {
 public:
  Allowance(size_t most, size_t turns) : most_(most), left_(most), turns_(turns) {}

  void spend(size_t messages, size_t bytes) {
    require(messages + bytes / 4096);
    left_ -= messages + bytes / 4096;
  }
  void require(size_t cost) const {
    if (cost <= left_) return;
    throw data_error(
        fmt::format(
            "a conversation of {} turns: which parts of it are answers is found by rendering what stands before "
            "each; expected at most {} turns rendered for it in all, found more",
            turns_, most_),
        "part it into several rows, or learn its last answers alone (--loss_scale last_round)");
  }

 private:
  const size_t most_;
  size_t left_;
  const size_t turns_;
};

class SpanFinder {
 public:
  SpanFinder(const std::string& whole, const Json& messages, const RenderMessages& render, Allowance& allowance)
      : whole_(whole), messages_(messages), render_(render), allowance_(allowance) {}

  /// What message `i` adds to the whole, or nothing when it does not show.
  std::optional<Range> find(size_t i) const {
    const auto before = try_render(first(i), true);
    const auto after = try_render(first(i + 1), false);
    const bool starts = before && whole_.starts_with(*before);
    if (starts && after && after->size() >= before->size() && whole_.starts_with(*after))
      return Range{before->size(), after->size()};
    return by_probing(i, starts ? std::optional(before->size()) : std::nullopt, after);
  }

 private:
  Json first(size_t count) const {
    Json out = Json::array();
    for (size_t i = 0; i < count; ++i) out.push_back(messages_[i]);
    return out;
  }

  // A template may refuse a shortened or changed conversation; that is an answer here.
  std::optional<std::string> try_render(const Json& messages, bool add_generation_prompt) const {
    std::optional<std::string> text;
    try {
      text = render_(messages, add_generation_prompt);
    } catch (const UserError& error) {
      if (error.code() != ExitCode::kData) throw;  // the template itself is refused, whatever it is given
    }
    allowance_.spend(messages.size(), text ? text->size() : 0);
    return text;
  }

  static void set_text(Json& message, const std::string& text) {
    if (message["content"].is_array()) {
      message["content"] = Json::array({{{"type", "text"}, {"text", text}}});
    } else {
      message["content"] = text;
    }
  }

  static bool has_calls(const Json& message) {
    const auto calls = message.find("tool_calls");
    return calls != message.end() && calls->is_array() && !calls->empty();
  }

  // The name of the last call: what follows it are its arguments and the end of the turn.
  static void set_last_name(Json& message, const std::string& text) {
    Json& call = message["tool_calls"].back();
    (call.contains("function") ? call["function"] : call)["name"] = text;
  }

  // Where the words of a message begin in the whole, which goes on otherwise than these messages do.
  std::optional<size_t> beginning(size_t i) const {
    Json changed = messages_, changed_too = messages_;
    set_text(changed[i], "Xprobe0X");
    set_text(changed_too[i], "Yprobe1Y");
    const auto a = try_render(changed, false), b = try_render(changed_too, false);
    if (!a || !b || *a == *b) return {};
    const auto content =
        static_cast<size_t>(std::mismatch(a->begin(), a->end(), b->begin(), b->end()).first - a->begin());
    return whole_.compare(0, content, *a, 0, content) == 0 ? std::optional(content) : std::nullopt;
  }

  // For templates that write a message differently when it is not the last: the content is where two renderings of the
  // whole with two different contents differ. What follows the content when the message is the last (its end token)
  // belongs to it, if it stands in the whole too.
  std::optional<Range> by_probing(size_t i, std::optional<size_t> begin,
                                  const std::optional<std::string>& after) const {
    const bool calls = has_calls(messages_[i]);
    if (calls && !begin) {
      // The words stand before the calls: where they begin is asked of the message without its calls.
      Json words = messages_;
      words[i].erase("tool_calls");
      if (const auto range = SpanFinder(whole_, words, render_, allowance_).beginning(i)) begin = *range;
    }
    const auto set_probe = [&](Json& message, const std::string& text) {
      calls ? set_last_name(message, text) : set_text(message, text);
    };
    const std::string probe = "Xprobe0X", other = "Yprobe1Y";
    Json changed = messages_, changed_too = messages_, shortened = first(i + 1);
    set_probe(changed[i], probe);
    set_probe(changed_too[i], other);
    set_probe(shortened[i], probe);
    const auto a = try_render(changed, false), b = try_render(changed_too, false);
    if (!a || !b || *a == *b) return {};
    const auto differs = std::mismatch(a->begin(), a->end(), b->begin(), b->end());
    const auto content = static_cast<size_t>(differs.first - a->begin());
    const size_t at = a->find(probe, content);
    if (at != content) return {};
    const size_t tail = a->size() - content - probe.size();  // bytes behind the content
    // The whole may end with a generation prompt, which the probes do not have.
    const std::string_view rest = std::string_view(*a).substr(a->size() - tail);
    const size_t end = rest.empty() ? whole_.size() : whole_.rfind(rest);
    if (end == std::string::npos || end < content || whole_.compare(0, content, *a, 0, content) != 0) return {};
    Range range{begin.value_or(content), end};
    if (range.begin > content) range.begin = content;
    range.end += end_mark(shortened, probe, after, end);
    return range;
  }

  // Bytes behind the content that the message brings along.
  size_t end_mark(const Json& shortened, const std::string& probe, const std::optional<std::string>& after,
                  size_t end) const {
    if (!after) return 0;
    const auto last = try_render(shortened, false);
    const size_t at = last ? last->rfind(probe) : std::string::npos;
    if (at == std::string::npos) return 0;
    const std::string_view mark = std::string_view(*last).substr(at + probe.size());
    return std::string_view(whole_).substr(end).starts_with(mark) ? mark.size() : 0;
  }

  const std::string& whole_;
  const Json& messages_;
  const RenderMessages& render_;
  Allowance& allowance_;
};

}  // namespace

std::vector<TextSpan> find_spans(const std::string& whole, const Json& messages, const RenderMessages& render,
                                 const std::vector<bool>& trained_flags, size_t most_rendered) {
  Allowance allowance(most_rendered, messages.size());
  const auto is_learnt = [&](size_t i) {
    return messages[i].value("role", "") == "assistant" && (i >= trained_flags.size() || trained_flags[i]);
  };
  size_t least = 0;
  for (size_t i = 0; i < messages.size(); ++i) least += is_learnt(i) ? 2 * i + 1 : 0;
  allowance.require(least);
  const SpanFinder finder(whole, messages, render, allowance);
  std::vector<TextSpan> spans;
  size_t done = 0;
  const auto add = [&](size_t end, bool trained, int message = -1) {
    if (end <= done) return;
    if (!spans.empty() && spans.back().trained == trained && spans.back().message == message) {
      spans.back().text.append(whole, done, end - done);
    } else {
      spans.push_back({whole.substr(done, end - done), trained, message});
    }
    done = end;
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_learnt(i)) continue;
    const auto range = finder.find(i);
    if (!range) continue;
    add(range->begin, false);
    add(range->end, true, static_cast<int>(i));
  }
  add(whole.size(), false);
  return spans;
}

}  // namespace lockstep
