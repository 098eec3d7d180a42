#include "lockstep/base/version.h"

namespace lockstep {

const char* const kVersion = LOCKSTEP_VERSION;  // defined for this file alone, by CMake

}  // namespace lockstep
