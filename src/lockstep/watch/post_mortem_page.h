// A post-mortem as one self-contained HTML page: the diagnosis, the timeline of ranks, the calls around the divergence,
// and every rank's record folded below. No script, nothing from elsewhere; all that ranks have written is escaped.
//
// Example:
//   write_text(folder / "timeline.html", render_post_mortem(read_post_mortem(folder)));
#pragma once

#include <string>

#include "lockstep/guard/post_mortem.h"

namespace lockstep {

std::string render_post_mortem(const PostMortem& found);

}  // namespace lockstep
