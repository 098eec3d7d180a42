// Phases that all ranks go through together: when one fails, all fail with the same error, and nobody is left waiting.
//
// Example:
//   together(control, "loading weights", [&] { store.load(weights, keys); });   // no collectives inside
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/failure.h"
#include "lockstep/comm/label.h"

namespace lockstep {

class Communicator;

/// Runs the phase on every rank, compares notes, and throws the first failing rank's error on all. A CollectiveError
/// passes through at once: there is nobody left to compare notes with. Collective.
void together(Communicator& control, const Label& label, const std::function<void()>& phase);

/// The second half of together, for a failure caught elsewhere. Collective.
void agree_no_failure(Communicator& control, const Label& label, const std::optional<Failure>& mine);

}  // namespace lockstep
