// Which of this host's addresses others can reach, and which of its ports are free.
#pragma once

#include <string>

namespace lockstep {

/// The address with which this host speaks to `host`; its own name may resolve to one that nobody else reaches. "" when
/// `host` cannot be resolved.
std::string own_address_towards(const std::string& host);

/// A port that nobody listens on now; whoever wants it takes it a moment later. Throws Error.
int free_port();

/// Somebody listens there already, on any of this host's addresses.
bool port_is_taken(int port);

}  // namespace lockstep
