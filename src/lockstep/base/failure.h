// What is left of an exception when it travels to other ranks, or out of the process.
#pragma once

#include <exception>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

/// What helps where memory is full.
inline constexpr const char* kNeedLessMemory =
    "a higher ZeRO stage, more ranks, a smaller batch or --max_length need less; `lockstep plan` shows how much";

struct Failure {
  ExitCode code = ExitCode::kInternal;
  std::string message, hint;
  bool shared = false;  // every rank has the same
};

/// An error that every rank throws alike.
class SharedError final : public Error {
 public:
  using Error::Error;
};

/// Out-of-memory errors of the allocators become kMemory, what a file system refuses kUsage, unknown exceptions kInternal.
Failure describe_failure(const std::exception& error);

}  // namespace lockstep
