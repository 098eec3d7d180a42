// A row that is longer than --max_length: refused, or cut where it may be cut.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/processor.h"

namespace lockstep {

/// Cuts ids and labels alike. Tokens equal to `kept` (media placeholders; -1: none) stay. Throws UserError(kData)
/// naming `where`, the tokens found and the limit, when the row may not be cut or its media alone are too long.
void fit_length(std::vector<int32_t>& ids, std::vector<int32_t>& labels, int32_t kept, const ProcessOptions& options,
                const std::string& where);

}  // namespace lockstep
