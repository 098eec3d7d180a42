// A family's processor without its media: for a model whose tower is not built.
#pragma once

#include <memory>
#include <string>

#include "lockstep/data/processor.h"

namespace lockstep {

/// Rows of text go to `inner`; rows with images or videos throw UserError(kData) that names the row, `reason` ("vision
/// is not built (--no_build vision)") and what to do.
std::unique_ptr<Processor> text_only_processor(std::unique_ptr<Processor> inner, std::string reason);

}  // namespace lockstep
