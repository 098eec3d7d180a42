// Which messages of a row are learnt.
#pragma once

#include <vector>

#include "lockstep/data/processor.h"

namespace lockstep {

/// By message. Throws UserError(kData) where none is, or where a row says of a message what a run that learns all cannot keep.
std::vector<bool> learnt_messages(const Sample& sample, Taught::Of of);

}  // namespace lockstep
