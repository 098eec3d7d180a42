// Words of a run that nothing in it reads: they are told, and never dropped in silence.
#pragma once

#include <string>
#include <vector>

#include "lockstep/tasks/fine_tune_options.h"

namespace lockstep {

/// "--packing_strategy sequential has no effect: ..."; one for each word that says something else than usual, and that
/// nothing heeds as the others stand. `options.rows.speaks` is decided by then.
std::vector<std::string> unheeded_words(const FineTuneOptions& options);

}  // namespace lockstep
