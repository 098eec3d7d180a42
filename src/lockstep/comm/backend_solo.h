// A world of one: a gather is a copy (or nothing, when shard and whole share memory), a reduction an addition.
#pragma once

#include "lockstep/comm/backend.h"

namespace lockstep {

std::unique_ptr<Backend> make_solo_backend(const std::string& device);

}  // namespace lockstep
