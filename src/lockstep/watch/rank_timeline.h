// The timeline of ranks as HTML: a row per standing, its calls as bars on one clock, the call in question marked on
// every row, and what became of the rank where its bars end. No script; the page's style sheet colours it.
//
// Example:
//   html += render_timeline(standings(ranks, culprits), compare_calls(ranks, diagnosis));
#pragma once

#include <string>
#include <vector>

#include "lockstep/watch/post_mortem_view.h"

namespace lockstep {

/// `marked` names the call in question (seq 0: there is none).
std::string render_timeline(const std::vector<Standing>& rows, const Comparison& marked);

/// The colour class of an operation, "o0" to "o11".
std::string op_class(Op op);

/// The colour class of what became of a rank: "bad", "warn" or "".
const char* mood_class(const State& state, bool culprit);

/// "350 µs", "12.5 ms", "3.2s".
std::string short_time(double seconds);

}  // namespace lockstep
