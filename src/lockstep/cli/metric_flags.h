// The flags of evaluation that eval and sft share: which metrics are told, and which programs measure too.
#pragma once

#include "lockstep/tasks/metric_options.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

void add_metric_flags(CLI::App& app, MetricOptions& options, const char* group);

}  // namespace lockstep
