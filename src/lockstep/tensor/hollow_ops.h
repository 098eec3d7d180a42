// What LibTorch's C++ lacks for tensors without bytes: shapes of the ops that models use.
#pragma once

#include <memory>

namespace lockstep {

/// While it lives. DeviceMemory holds one, but in a process that is shared: there each rehearsal does.
class HollowOps {
 public:
  HollowOps();
  ~HollowOps();
  HollowOps(const HollowOps&) = delete;
  HollowOps& operator=(const HollowOps&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
