// The border of a rank's process: what becomes of an error, once, whatever the number of ranks, and of a good end.
//
// Example:
//   const auto recorder = std::make_shared<Recorder>();
//   return rank_main("my-program", env, *recorder, [&] {
//     Job job = start_job(options, env, {.program = "my-program", .recorder = recorder});
//     …
//     return 0;
//   });
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "lockstep/base/env.h"
#include "lockstep/base/failure.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {

/// Told of an error before it is printed; true: it need not be.
using TellFailure = std::function<bool(const Failure& failure, const std::exception& error)>;

/// Runs `body` and returns its exit code. The calls of all ranks are compared once more at its end: an error there is
/// the result. What `body` throws is reported. Throws nothing.
int rank_main(const std::string& program, const Env& env, Recorder& recorder, const std::function<int()>& body,
              const TellFailure& tell = {});

/// Where the roll call watches, tells it and leaves the printing to it. Else prints `PROGRAM: error: …` and a hint to
/// standard error. Writes TORCHELASTIC_ERROR_FILE when that is set. Returns the exit code.
int report_failure(const std::string& program, const Env& env, Recorder& recorder, const std::exception& error,
                   const TellFailure& tell = {});

}  // namespace lockstep
