#include "lockstep/zoo/plain_text.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/zoo/mark_parts.h"

namespace lockstep {

std::vector<TextSpan> plain_spans(const Sample& sample, size_t count, const std::map<Modality, MediumRules>& media,
                                  const std::vector<bool>& trained) {
  const auto& messages = sample.messages;
  const auto is = [&](size_t i, const char* role) { return i < messages.size() && messages[i].role == role; };
  const bool one = messages.size() == 1 && (is(0, "user") || is(0, "assistant"));
  const bool pair = messages.size() == 2 && is(0, "user") && is(1, "assistant");
  if (!one && !pair) {
    std::string roles;
    for (const auto& message : messages) roles += (roles.empty() ? "" : ", ") + message.role;
    throw data_error(fmt::format("{}: expected a text, or a question and its answer (without a chat template nothing "
                                 "parts turns), found messages of {}",
                                 sample.where, roles.empty() ? "nobody" : roles),
                     "put all of the row into one text, or train on conversations: lockstep sft");
  }
  std::vector<TextSpan> spans;
  for (size_t i = 0; i < count; ++i) {
    std::string text = messages[i].content;
    for (const auto& [kind, medium] : media) {
      if (medium.placeholder != media_mark(kind)) text = replaced(std::move(text), media_mark(kind), medium);
    }
    spans.push_back(
        {.text = std::move(text), .trained = i < trained.size() && trained[i], .message = static_cast<int>(i)});
  }
  return spans;
}

}  // namespace lockstep
