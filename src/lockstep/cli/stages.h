// Training in stages: one file, one command, each stage a run of its own that starts from the last checkpoint of the
// one before.
//
// OUTPUT/stages.json says which stages are finished; OUTPUT/<number>-<name>/ is a stage's run folder. Each stage is a
// launch of its own, so that stages may differ in everything that flags can say.
#pragma once

#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/cli/config_file.h"

namespace lockstep {

/// Checks the flags of all stages against the model and the data, then runs them in order. `words`: the command line,
/// for the command that goes on. Returns the exit code of the first stage that does not end well, else 0. Throws
/// UserError.
int run_stages(const StagedFile& file, const std::vector<std::string>& words, const Env& env);

}  // namespace lockstep
