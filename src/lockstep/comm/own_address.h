// Which of this host's addresses others can reach.
#pragma once

#include <string>

namespace lockstep {

/// The address with which this host speaks to `host`; its own name may resolve to one that nobody else reaches. "" when
/// `host` cannot be resolved.
std::string own_address_towards(const std::string& host);

}  // namespace lockstep
