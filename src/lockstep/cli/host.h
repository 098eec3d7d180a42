// The process that verbs run in, as main has made it.
#pragma once

#include <filesystem>
#include <memory>

#include "lockstep/base/env.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {

struct Host {
  Env env;
  std::filesystem::path executable;  // this program: ranks, agents and the demo's steps are started from it
  /// What this process does, for the roll call. It outlives the verb that fails, so that the failure can still be told.
  std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();
};

}  // namespace lockstep
