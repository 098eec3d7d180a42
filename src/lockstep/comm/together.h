// Phases that all ranks go through together: when one fails, all fail with the same error, and nobody is left waiting.
//
// Example:
//   together(control, "loading weights", [&] { store.load(weights, keys); });   // no collectives inside
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

class Communicator;

/// An error that every rank throws alike: who prints it may decide that one print is enough.
class SharedError final : public Error {
 public:
  using Error::Error;
};

/// What is left of an exception when it travels to other ranks.
struct Failure {
  ExitCode code = ExitCode::kInternal;
  std::string message, hint;
};

/// Out-of-memory errors of the allocators become kMemory, unknown exceptions kInternal.
Failure describe_failure(const std::exception& error);

/// Runs the phase on every rank, compares notes, and throws the first failing rank's error on all. A CollectiveError
/// passes through at once: there is nobody left to compare notes with. Collective.
void together(Communicator& control, std::string_view label, const std::function<void()>& phase);

/// The second half of together, for a failure caught elsewhere. Collective.
void agree_no_failure(Communicator& control, std::string_view label, const std::optional<Failure>& mine);

}  // namespace lockstep
