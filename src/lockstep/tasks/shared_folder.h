// Whether a folder is the same on all hosts of a job.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/session/job.h"

namespace lockstep {

/// Each rank writes its part of a checkpoint, or its finished rows, into a folder that rank 0 has made: every host looks whether it is the
/// same there, and can be written. Throws UserError(kUsage) naming `flag`, the rank and its host. Collective; nothing on one host.
void require_shared(const std::string& flag, const std::filesystem::path& folder, Job& job);

/// What is told where a host was given another place by `flag` than rank 0, whose counts; empty: none was. Collective.
std::string other_place_given(const std::string& flag, const std::filesystem::path& given, Job& job);

}  // namespace lockstep
