// Tools, calls and their results where a checkpoint's chat template does not write them itself: in the words of Hermes, which
// Qwen's own templates use, and ms-swift where the template has none.
#pragma once

#include "lockstep/data/sample.h"
#include "lockstep/text/chat_template.h"

namespace lockstep {

/// Whether the row has tools, calls or results of calls.
bool has_tools(const Sample& sample);

/// Puts into the texts what the template does not read. Throws UserError(kData) naming the row for a template of another kind
/// than ChatML's.
void write_tools(Sample& sample, const ChatTemplate& chat);

}  // namespace lockstep
