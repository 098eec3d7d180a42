// A post-mortem for the terminal, and for programs.
#pragma once

#include <string>

#include "lockstep/guard/post_mortem.h"

namespace lockstep {

/// The diagnosis, a line per rank (ranks that stand alike share one where there are many), and the calls of an odd and
/// of a usual rank side by side. What ranks have written cannot steer the terminal.
std::string post_mortem_text(const PostMortem& found);

/// {"folder", "diagnosis", "ranks": [{"rank", "host", "state", …}]}: the rings stay in the folder's files.
std::string post_mortem_json(const PostMortem& found);

}  // namespace lockstep
