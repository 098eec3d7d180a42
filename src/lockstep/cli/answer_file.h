// Answers to a file of prompts: every row once, in input order, under ms-swift's names; a run that was cut short goes
// on where it stopped.
#pragma once

#include "lockstep/base/env.h"
#include "lockstep/cli/infer_flags.h"
#include "lockstep/cli/session.h"

namespace lockstep {

/// Collective. Throws UserError, the same on all ranks.
void answer_file(Session& session, InferFlags flags, const Env& env);

}  // namespace lockstep
