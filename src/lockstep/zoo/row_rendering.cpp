#include "lockstep/zoo/row_rendering.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// They ask for thinking, of which a template without a word for it has none.
constexpr std::array kOfThinking = {"enable_thinking", "preserve_thinking"};

}  // namespace

RowRendering::~RowRendering() = default;

RowRendering::RowRendering(const Sample& sample, const ChatTemplate& chat) {
  if (!sample.tools.empty()) tools_ = std::make_unique<Json>(parse_json_or_discard(sample.tools));
  if (sample.variables.empty()) return;
  variables_ = std::make_unique<Json>(parse_json_or_discard(sample.variables));
  for (const auto& [name, value] : variables_->items()) {
    const bool read = chat.source(!sample.tools.empty()).find(name) != std::string::npos;
    if (read || std::ranges::find(kOfThinking, name) != kOfThinking.end()) continue;
    throw data_error(
        fmt::format("{}: field \"chat_template_kwargs.{}\": expected fps, nframes, min_frames, max_frames, "
                    "min_pixels, max_pixels, total_pixels or what the chat template reads, found {}",
                    sample.where, name, value.dump(-1, ' ', true, Json::error_handler_t::replace)));
  }
}

RenderOptions RowRendering::options(RenderOptions given) const {
  given.tools = tools_.get();
  given.variables = variables_.get();
  return given;
}

}  // namespace lockstep
