// A row as people's data has them, for where there is no data yet: lengths and shapes, no values.
#pragma once

#include <cstdint>

#include "lockstep/data/features.h"

namespace lockstep {

/// Every token a target.
Features typical_text_row(int64_t tokens);

/// The same with a picture in front, which takes `placeholders` of the tokens; of text alone when it does not fit. The
/// picture has a shape and facts, and no values.
Features typical_picture_row(int64_t tokens, MediaBlock picture, int64_t placeholders);

}  // namespace lockstep
