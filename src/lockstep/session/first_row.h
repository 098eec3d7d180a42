// The first row of a data set as the model gets it: what training, evaluation and generation print before they begin, in the
// same words, so that a row which is spelled otherwise in one of them shows.
#pragma once

#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/session/row_options.h"
#include "lockstep/session/session.h"

namespace lockstep {

/// "first row, 31 tokens, 5 trained in [[ ]], rendering 0123456789abcdef: USER: …". Where the row's answer is generated,
/// the prompt alone. Throws UserError(kData) for a row that cannot be used.
std::string first_row_text(const Session& session, const Dataset& rows, const RowOptions& options, bool prompt);

/// The same as a notice, where a run reads rows without learning from them. Nothing where that row cannot be used: it is
/// named when it is its turn. For the rank that reports.
void tell_first_row(const Session& session, const Dataset& rows, const RowOptions& options, bool prompt,
                    const EventBus& events);

}  // namespace lockstep
