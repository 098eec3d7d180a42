// A rank's piece of shared memory: a control page that peers watch, and a ring of slots. Waiting is a short spin, then
// a futex.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/clock.h"

namespace lockstep {

/// The control page. Counters only grow; `signal` is the futex word that changes with each of them.
struct ShmControl {
  std::atomic<uint64_t> posted{0};    // pieces this rank has sent
  std::atomic<uint64_t> consumed{0};  // pieces of all ranks this rank has done with, in order
  std::atomic<uint32_t> signal{0};
  std::atomic<uint32_t> waiters{0};
  std::atomic<uint32_t> left{0};  // the rank is gone, for good or with an error
  int32_t pid = 0;
};

class ShmSegment {
 public:
  /// Creates and reserves (so that a full /dev/shm is an error here, not a SIGBUS later). nullptr when there is no
  /// room.
  static std::unique_ptr<ShmSegment> create(const std::string& name, int64_t slots, int64_t slot_bytes);
  /// Opens a peer's; nullptr when it is not there.
  static std::unique_ptr<ShmSegment> open(const std::string& name, int64_t slots, int64_t slot_bytes);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  ShmControl& control() const { return *static_cast<ShmControl*>(base_); }
  char* slot(uint64_t index) const;
  void unlink();  // the name goes, the memory stays while someone maps it

  /// Wakes whoever watches this rank; call after changing a counter.
  void signal() const;
  /// Returns when `counter` >= wanted. Throws CommTimeout at the deadline; std::runtime_error when the rank has left or
  /// its process is dead, or when *aborted becomes true. `who` names the rank.
  void wait_for(const std::atomic<uint64_t>& counter, uint64_t wanted, const Deadline& deadline,
                const std::atomic<bool>& aborted, int who) const;

 private:
  ShmSegment(std::string name, void* base, int64_t slots, int64_t slot_bytes);

  std::string name_;
  void* base_;
  int64_t slots_, slot_bytes_;
  bool owner_ = false;
};

}  // namespace lockstep
