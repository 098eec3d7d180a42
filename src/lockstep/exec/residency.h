// Whose parameters are on a device: gathers the units of a step from other ranks or from host memory, prefetches the
// next, and drops them when the last lease ends. A tied unit is copied to the device that reads it for as long as it is
// read there.
//
// Where everything is resident (below ZeRO-3, nothing offloaded, nothing tied over devices) this costs nothing. What is
// kept as codes is unpacked for as long as a step needs it. Every
// rank borrows and prefetches in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/exec/copier.h"
#include "lockstep/state/param_store.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {

class Residency;

/// The parameters of one step, usable while it lives.
class [[nodiscard]] Lease {
 public:
  Lease() = default;
  ~Lease();
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;

  std::vector<Tensor> params() const;  // in the order of Block::params(), on the step's device
  void release();                      // before the destructor, when the rest of the scope does not need them

 private:
  friend class Residency;
  Residency* home_ = nullptr;
  const Step* step_ = nullptr;
};

class Residency {
 public:
  Residency(ParamStore& store, Communicator& comm);
  ~Residency();

  Lease borrow(const Step& step);   // waits for the gathers of its units; where it throws, it holds none
  void prefetch(const Step& step);  // launches them

 private:
  friend class Lease;
  /// A unit on its own device.
  struct Slot {
    int leases = 0;
    bool resident = false;
    Copier::Ticket copying;
    GpuMoment copied;  // set by the copier, read after its ticket
    Pending gathering;
  };
  void launch(int unit);
  void copy_to(Slot& slot, int unit, int device);
  void gather(int unit);
  void hold(int unit);
  void bring(int unit);
  void unpack(int unit);
  void let_go(int unit);
  void borrow_copy(int unit, int device);
  void take(const Step& step, int unit);
  void give_back(const Step& step, int unit);
  void release(const Step& step);

  ParamStore& store_;
  Communicator& comm_;
  std::vector<Slot> slots_;
  std::vector<std::vector<int>> copies_;  // by unit and view: leases of a copy on another device
  std::unique_ptr<Copier> copier_;        // where parameters are offloaded
};

}  // namespace lockstep
