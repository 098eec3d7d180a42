// A family's processor without some of its media: for a model whose tower is not built.
#pragma once

#include <memory>
#include <string>

#include "lockstep/base/modality.h"
#include "lockstep/data/processor.h"

namespace lockstep {

struct UnbuiltWords {
  std::string expected;  // "a row of text alone"
  std::string reason;    // "vision is not built (--no_build vision)"
  std::string cure;      // "leave --no_build out"
};
/// Rows without `unbuilt` media go to `inner`; others throw UserError(kData) that names the row and what to do.
std::unique_ptr<Processor> without_media(std::unique_ptr<Processor> inner, Modalities unbuilt, UnbuiltWords words);

}  // namespace lockstep
