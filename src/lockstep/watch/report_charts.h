// Which curves the report draws from a run's history.
#pragma once

#include <vector>

#include "lockstep/watch/chart_svg.h"
#include "lockstep/watch/run_history.h"

namespace lockstep {

/// Loss (raw, smoothed, evaluations), rate, gradient norm, accuracy, speed, memory against the plan, communication. A
/// chart of something never measured is left out.
std::vector<Chart> report_charts(const RunHistory& history);

/// Exponential moving average with `keep` of the past, corrected for its start; gaps are skipped.
std::vector<double> smoothed(const std::vector<double>& y, double keep);

/// The training loss as the report smooths it, one value a record.
std::vector<double> smoothed_loss(const RunHistory& history);

}  // namespace lockstep
