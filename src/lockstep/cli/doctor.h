// `lockstep doctor`: what could stop or slow a job on these machines, with what repairs it, before the job is started.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"

namespace lockstep {

extern const char* const doctor_summary;
int run_doctor(const std::vector<std::string>& args, const Env& env);

}  // namespace lockstep
