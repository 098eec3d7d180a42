// Rows with pictures, given to a model that is built without its tower.
#pragma once

#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/model/model.h"
#include "lockstep/session/job.h"

namespace lockstep {

/// A sentence about such rows, "" where there are none or nothing was left out: rank 0 looks at up to a thousand rows
/// spread over the data set. Throws UserError(kData) on all ranks when all rows are such. Collective.
std::string rows_with_media(Job& job, const Model& model, const Dataset& rows);

}  // namespace lockstep
