// Which parts of a rendered conversation the assistant wrote.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/text/chat_template.h"

namespace lockstep {

/// Renders messages with or without the generation prompt.
using RenderMessages = std::function<std::string(const Json& messages, bool add_generation_prompt)>;

/// What finding the answers of one conversation may render, in messages, and in 4 KiB of text as many more: each answer
/// takes what stands before it, twice and more. Half a minute; the rows of real data sets take a thousandth.
inline constexpr size_t kMostRendered = 6'000'000;

/// See ChatTemplate::render_spans. `whole` is the conversation as rendered. Throws UserError(kData) beyond `most_rendered`.
std::vector<TextSpan> find_spans(const std::string& whole, const Json& messages, const RenderMessages& render,
                                 const std::vector<bool>& trained_flags, size_t most_rendered = kMostRendered);

}  // namespace lockstep
