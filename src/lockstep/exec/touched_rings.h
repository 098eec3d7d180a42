// What a rank touches of the slots that ranks of one host share (comm/backend_shm.h): memory of the process that is no tensor.
#pragma once

#include <compare>
#include <cstdint>
#include <set>

namespace lockstep {

/// Calls take slots in turn. A call that comes again comes in another slot only where what was between took a number of
/// slots that is no multiple of theirs: a step may leave half of the slots to small calls for ever.
class TouchedRings {
 public:
  explicit TouchedRings(int ranks) : ranks_(ranks) {}

  /// A call for which every rank fills `bytes`, and reads what all have filled.
  void shares(int64_t bytes);
  /// A call for which every rank fills `bytes`, of which each reads the part that is its own.
  void reduces(int64_t bytes);
  /// What has come since the last end comes again, any number of times, and so do the phases before it.
  void phase_ends();

  /// Of the rank that touches most, which is the last: of its peers' slots it reads what lies at the end of each call.
  int64_t bytes() const;

 private:
  struct Stretch {
    int64_t turn = 0;  // slots that the phase had taken before
    int64_t bytes = 0, read_from = 0;
    auto operator<=>(const Stretch&) const = default;
  };

  int64_t ranks_;
  std::set<Stretch> stretches_;
  int64_t turns_ = 0;   // of this phase, so far
  int64_t period_ = 0;  // greatest common divisor of all phases' turns and the number of slots; 0: none has ended
};

}  // namespace lockstep
