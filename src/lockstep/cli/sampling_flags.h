// The flags that say how an answer's next token is chosen, and how its tokens become a text.
#pragma once

#include <string>

#include "lockstep/infer/sampler.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

void add_sampling_flags(CLI::App& app, const std::string& group, SamplingOptions& out);

}  // namespace lockstep
