// Which parts of a rendered conversation the assistant wrote.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/text/chat_template.h"

namespace lockstep {

/// Renders messages with or without the generation prompt.
using RenderMessages = std::function<std::string(const Json& messages, bool add_generation_prompt)>;

/// See ChatTemplate::render_spans. `whole` is the conversation as rendered.
std::vector<TextSpan> find_spans(const std::string& whole, const Json& messages, const RenderMessages& render,
                                 const std::vector<bool>& trained_flags);

}  // namespace lockstep
