// A sample as a row that is read as the same sample, whatever form it came in: rows that were kept apart, answers that may be
// asked again.
#pragma once

#include "lockstep/base/json.h"
#include "lockstep/data/sample.h"

namespace lockstep {

/// Media by absolute path, or as data: URIs. What `sample.where` and `sample.row` say stands nowhere.
Json sample_row(const Sample& sample);

}  // namespace lockstep
