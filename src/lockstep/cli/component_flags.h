// The flags of what is trained, frozen, and how fast.
#pragma once

#include "lockstep/plan/component_choice.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

/// With `rates`, also those of the learning rates.
void add_component_flags(CLI::App& app, ComponentChoice& choice, bool rates);

}  // namespace lockstep
