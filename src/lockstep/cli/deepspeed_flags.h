// A DeepSpeed file beside the flags: what both say must agree, as the HF Trainer has it; what it says in vain is told.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/flags.h"
#include "lockstep/cli/train_flags.h"

namespace lockstep {

/// Takes from the file, where no flag says it, the dtype and what DeepSpeed has where its optimizer leaves something out;
/// `app` has parsed them, and tells args.json. Returns notices. Throws UserError(kUsage), which lists all that
/// differs.
std::vector<std::string> agree_with_deepspeed(SftFlags& flags, CLI::App& app);

}  // namespace lockstep
