// What all ranks are to have alike: compared, or taken from rank 0.
//
// Example:
//   agree_on(control, {{"data set", rows.fingerprint()}});
//   const std::string folder = from_rank_0(control, chosen, "run folder");
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/label.h"

namespace lockstep {

class Communicator;

/// Compares named texts with the other ranks'. Throws the same SharedError on all, naming what differs, where, and both
/// values. Collective.
void agree_on(Communicator& control, const std::vector<std::pair<std::string, std::string>>& facts);

/// A value of rank 0 on every rank. Collective.
std::string from_rank_0(Communicator& control, const std::string& value, const Label& label);

}  // namespace lockstep
