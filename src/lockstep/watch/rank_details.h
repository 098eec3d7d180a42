// Everything that is known of each rank, as HTML that stays folded until somebody asks: place, last words, stack,
// facts, and the ring as a table.
#pragma once

#include <string>
#include <vector>

#include "lockstep/watch/post_mortem_view.h"

namespace lockstep {

/// One folded block a row. Of many rows each shows fewer calls; the folder's files hold them all.
std::string render_details(const std::vector<Standing>& rows, const Comparison& marked);

/// The calls of the odd rank beside those of the usual one, as a table; "" when there are none.
std::string render_comparison(const Comparison& comparison);

}  // namespace lockstep
