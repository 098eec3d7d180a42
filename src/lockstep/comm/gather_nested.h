// Gathers any nested structure (tensor, list, tuple, dict, string, number, none) from all ranks, whatever the first
// dimensions. Structures are compared first: when they differ, every rank gets the same error with both structures and
// who holds each (incident I1), and nobody waits.
#pragma once

#include <vector>

#include "lockstep/comm/label.h"
#include "lockstep/tensor/value.h"

namespace lockstep {

class Communicator;

/// Every rank's value, in rank order, on every rank. Throws CollectiveError when structure or dtypes differ.
std::vector<Value> gather_nested(Communicator& comm, const Value& mine, const Label& label);

}  // namespace lockstep
