// report.html as a text: one self-contained page from a run's history. Everything that comes from data is escaped.
#pragma once

#include <string>

#include "lockstep/watch/run_history.h"

namespace lockstep {

/// Images of sample predictions are read from their paths and inlined; those over 300 KB are left out.
std::string render_report(const RunHistory& history);

}  // namespace lockstep
