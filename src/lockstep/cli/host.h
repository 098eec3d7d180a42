// The process that verbs run in, as main has made it.
#pragma once

#include <filesystem>
#include <memory>

#include "lockstep/base/env.h"
#include "lockstep/guard/recorder.h"
#include "lockstep/watch/event_lines.h"

namespace lockstep {

struct Host {
  Env env;
  std::filesystem::path executable;  // this program: ranks, agents and the demo's steps are started from it
  /// What this process does, for the roll call. It outlives the verb that fails, so that the failure can still be told.
  std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();
  std::shared_ptr<EventLines> lines{};  // for a program that has started this one (LOCKSTEP_EVENTS); null: for people
};

}  // namespace lockstep
