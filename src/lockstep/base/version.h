// What --version prints and what all ranks must have in common: the version of the CMake project.
#pragma once

namespace lockstep {

extern const char* const kVersion;

}  // namespace lockstep
