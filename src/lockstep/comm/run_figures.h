// The figures of all ranks as one account of the run, by kind of call and by label.
//
// Example:
//   const CommunicationFigures figures = collect_figures(*setup.data, *setup.control);   // at the end, on every rank
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/communication.h"
#include "lockstep/comm/figures.h"

namespace lockstep {

class Communicator;

/// A label without what makes it one of many. Calls for parameters and gradients are labelled "<block> <what>":
/// "model.layers.7 gather" is "gather". Of other labels only the digits go: "step 12 figures" is "step figures".
std::string kind_of(std::string_view label, bool of_parameters);

/// What one rank counted.
struct RankFigures {
  double seconds = 0;  // since its communicators were made
  std::vector<LabelFigures> of_parameters, others;
};

/// Means over ranks, with the rank that stands out. A rank without a line counts as zero there.
CommunicationFigures merge_figures(const std::vector<RankFigures>& ranks);

/// Collective over `control`; the same figures on every rank. The call that collects is not among them.
CommunicationFigures collect_figures(const Communicator& data, Communicator& control);

}  // namespace lockstep
