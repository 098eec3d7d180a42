// What <ref-object> and <bbox> in a row's texts become: names and boxes in the words and units of a family.
#pragma once

#include "lockstep/data/sample.h"
#include "lockstep/zoo/media_rules.h"

namespace lockstep {

/// Fills the marks of all messages from sample.objects. Pictures are opened where their sizes are needed. Throws
/// UserError(kData) naming the row.
void fill_boxes(Sample& sample, const BoxRules& rules, const MediaOptions& options);

/// Qwen's: between tokens of their own (legacy), or plain.
BoxRules qwen_boxes(BoxUnit unit);

}  // namespace lockstep
