// Collectives between GPUs by c10d's NCCL.
//
// Stream rules: a call runs on NCCL's stream after what the current stream has queued; finish() makes the current
// stream wait for the result and returns at once, so the host runs ahead. A thread watches the calls; one that is late
// is aborted, which frees a host that waits for the device, and the next call on this backend throws.
#pragma once

#include <memory>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/cuda_api.h"

namespace lockstep {

std::unique_ptr<Backend> make_nccl(const NcclGroup& group);

}  // namespace lockstep
