// Tells whether two machines have the same model folder, without reading all of a large one.
#pragma once

#include <string>

#include "lockstep/model/model_place.h"

namespace lockstep {

/// Of config.json and the weights: small files whole, of large ones the size, the beginning and pages spread evenly. 16 hex
/// digits; "+" and 16 more of a projector in a file of its own. Throws Error when a file cannot be read.
std::string model_fingerprint(const ModelPlace& place);

/// Of the folder's files that say how rows become tokens and numbers, and where an answer ends: tokenizer, templates,
/// processors, generation_config.json. 16 hex digits. Throws Error when one cannot be read.
std::string spelling_fingerprint(const ModelPlace& place);

}  // namespace lockstep
