// A transport to nobody: calls end at once, and take the memory that they would take.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/comm/backend.h"

namespace lockstep {

class RehearsalBackend : public Backend {
 public:
  /// Calls that come again together have come: those of a pass, of a step.
  virtual void phase_ends() = 0;
  /// Bytes of the process beside what devices count, after all phases so far: what a rank has touched of the rings that
  /// ranks of one host share.
  virtual int64_t bytes_beside() const = 0;
};

/// `transport`: "shm", "gloo" or "nccl", whose staging it imitates.
std::unique_ptr<RehearsalBackend> make_rehearsal_backend(int size, const std::string& transport);

}  // namespace lockstep
