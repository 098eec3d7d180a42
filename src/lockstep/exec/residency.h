// Who is in memory: gathers the units of a step, prefetches the next, and drops them when the last lease ends.
//
// Below ZeRO-3 everything is resident and this costs nothing. Every rank borrows and prefetches in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/state/param_store.h"

namespace lockstep {

class Residency;

/// The parameters of one step, usable while it lives.
class [[nodiscard]] Lease {
 public:
  Lease() = default;
  ~Lease();
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;

  std::vector<Tensor> params() const;  // in the order of Block::params()
  void release();                      // before the destructor, when the rest of the scope does not need them

 private:
  friend class Residency;
  Residency* home_ = nullptr;
  const Step* step_ = nullptr;
};

class Residency {
 public:
  Residency(ParamStore& store, Communicator& comm);

  Lease borrow(const Step& step);   // waits for the gathers of its units
  void prefetch(const Step& step);  // launches them

 private:
  friend class Lease;
  struct Slot {
    int leases = 0;
    bool resident = false;
    Pending gathering;
  };
  void launch(int unit);
  void release(const Step& step);

  ParamStore& store_;
  Communicator& comm_;
  std::vector<Slot> slots_;
};

}  // namespace lockstep
