// A processor that renders no conversations: what a row says stands there as it is. For pre-training, and base models.
#pragma once

#include <memory>

#include "lockstep/data/processor.h"

namespace lockstep {

/// ProcessOptions::use_chat_template is off for every row.
std::unique_ptr<Processor> without_chat_template(std::unique_ptr<Processor> inner);

}  // namespace lockstep
