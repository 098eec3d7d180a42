// Inside comm only: the c10d store behind a Rendezvous.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/rendezvous.h"

namespace lockstep {

struct Rendezvous::Impl {
  c10::intrusive_ptr<c10d::Store> store;
};

}  // namespace lockstep
