// An encoded sample as a person can check it: decoded, with the trained parts marked and runs of image tokens
// collapsed.
#pragma once

#include <string>

#include "lockstep/data/features.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

/// `USER: <image ×16> what? ASSISTANT:[[ red</s>]]`: what stands in double brackets is learnt. At most `max_chars`.
std::string view_sample(const Features& features, const Tokenizer& tokenizer, size_t max_chars = 1500);

}  // namespace lockstep
