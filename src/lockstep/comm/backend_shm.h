// Collectives between ranks of one host through shared memory: 3-10 times Gloo's speed and a fraction of its CPU time.
//
// Each rank owns a segment in /dev/shm: a control page and a ring of slots. A call is cut into chunks of at most a
// slot. To send chunk s, a rank writes it into slot s mod kSlots and posts s; whoever needs it copies or adds straight
// from there and marks s consumed. A slot is reused when all have consumed what was in it. Chunks complete in order,
// and posting chunk s completes this rank's own chunk s - kSlots first; that depends only on posts that come earlier in
// every rank's program, so any number of calls may be in flight without a deadlock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/comm/backend.h"

namespace lockstep {

class Rendezvous;
struct World;

inline constexpr int64_t kShmSlots = 4;  // of a ring
inline constexpr int64_t kDataSlotBytes = int64_t{4} << 20, kControlSlotBytes = int64_t{64} << 10;

struct ShmOptions {
  std::string name;  // unique for job and group
  int64_t slot_bytes = kDataSlotBytes;
  Clock::duration patience = std::chrono::minutes(10);    // for waits inside a launch
  Clock::duration connecting = std::chrono::minutes(10);  // until all have come here
};

/// Bytes of /dev/shm that a group's ranks of one host take: `wanted` with slots as large as they should be; below
/// `least` the group goes over Gloo, in between its slots are smaller.
struct ShmNeed {
  int64_t wanted = 0, least = 0;
};
ShmNeed shm_need(int ranks, int64_t slot_bytes);

/// nullptr when the ranks do not share a /dev/shm with room enough (every rank gets the same answer). Collective.
std::unique_ptr<Backend> make_shm_backend(const World& world, Rendezvous& rendezvous, const ShmOptions& options);

}  // namespace lockstep
