// Marks of media in a message's text as a chat template takes them: typed parts, or the family's own placeholders.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/modality.h"
#include "lockstep/zoo/media_rules.h"

namespace lockstep {

/// How marks become parts.
struct MarkRules {
  std::vector<Modality> kinds;  // which marks there are
  bool take_break = true;       // one line break beside a mark is part of it
};

/// "a <image> b" -> [{text}, {image}, {text}].
Json typed_parts(std::string_view content, const MarkRules& rules);

/// The same text with other marks, and line breaks behind those that end their lines and have none.
std::string replaced(std::string text, std::string_view mark, const MediumRules& rules);

/// Line breaks behind the first `media` marks where other text follows at once.
std::string front_on_own_lines(std::string text, size_t media);

}  // namespace lockstep
