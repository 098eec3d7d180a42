// A row without a chat template: what it says stands there as it is.
#pragma once

#include <map>
#include <vector>

#include "lockstep/base/modality.h"
#include "lockstep/data/sample.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/zoo/media_rules.h"

namespace lockstep {

/// The first `count` messages one behind the other, with the media's placeholders in place of their marks. Nothing parts a
/// turn from the next: a row is a text, or a question and its answer. Throws UserError(kData) naming the row for another.
/// Source: ms-swift 4.6, TemplateMeta.to_generate_template_meta.
std::vector<TextSpan> plain_spans(const Sample& sample, size_t count, const std::map<Modality, MediumRules>& media,
                                  const std::vector<bool>& trained = {});

}  // namespace lockstep
