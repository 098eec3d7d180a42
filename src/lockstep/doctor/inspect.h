// Looks at every part of a checkpoint folder; what cannot be read becomes a problem in the list, not an end.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "lockstep/base/json.h"
#include "lockstep/model/block.h"
#include "lockstep/model/model_place.h"

namespace lockstep {

/// Keys: folder, family, architectures, dialect, dtypes, parameters (by component), tied_head, files, weight_bytes,
/// tensors, borrowed_from (where tensors stand in other folders), extra, derived, vocab, tokenizer, processor,
/// chat_template, notices, problems.
/// `without`: components that would not be built; their parameters count as carried through. `audio_output`: nor would what
/// speaks, where it is false.
Json inspect_checkpoint(const ModelPlace& place, const std::set<Component>& without = {}, bool audio_output = true);

/// The same for people.
std::string inspect_text(const Json& report);

}  // namespace lockstep
