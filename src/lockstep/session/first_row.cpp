#include "lockstep/session/first_row.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/sample_view.h"

namespace lockstep {

std::string first_row_text(const Session& session, const Dataset& rows, const RowOptions& options, bool prompt) {
  const Sample sample = rows.sample(0);
  const Processor& processor = session.processor();
  const Features features = prompt ? processor.prompt_features(sample, options.process())
                                   : processor.train_features(sample, options.process());
  const auto trained = std::ranges::count_if(features.labels, [](int32_t id) { return id >= 0; });
  const std::string rendering = !session.options().joint.conversation.empty()
                                    ? "--conversation " + session.options().joint.conversation
                                : session.rendering().rows.empty() ? "no chat template"
                                                                   : "rendering " + session.rendering().hash();
  return fmt::format("first row, {} tokens{}, {}: {}", features.input_ids.size(),
                     prompt ? "" : fmt::format(", {} trained in [[ ]]", trained), rendering,
                     view_sample(features, processor.tokenizer()));
}

void tell_first_row(const Session& session, const Dataset& rows, const RowOptions& options, bool prompt,
                    const EventBus& events) {
  if (rows.size() == 0) return;
  try {
    events.emit(Notice{first_row_text(session, rows, options, prompt)});
  } catch (const UserError& error) {
    if (error.code() != ExitCode::kData) throw;
  }
}

}  // namespace lockstep
