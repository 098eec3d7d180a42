// Collectives between processes over TCP, by c10d's Gloo.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/comm/backend.h"

namespace lockstep {

class Rendezvous;
struct World;

/// The most that one reduction stages at once.
inline constexpr int64_t kGlooStagingBytes = int64_t{64} << 20;

struct GlooPatience {
  Clock::duration connecting, calls;
};

/// `name` is unique for job and group. Throws std::runtime_error when peers do not connect in time. Collective.
std::unique_ptr<Backend> make_gloo_backend(const World& world, Rendezvous& rendezvous, const std::string& name,
                                           const GlooPatience& patience);

}  // namespace lockstep
