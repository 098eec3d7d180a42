// Passes over rows that come and go, on any number of ranks: what generation of text and of speech share. Under ZeRO-3
// the ranks agree before each forward pass whether anyone still has one to run; who is done keeps lending its shards.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/base/failure.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/step_contract.h"
#include "lockstep/comm/together.h"
#include "lockstep/exec/executor.h"

namespace lockstep {

class Turns {
 public:
  /// `gathers`: parameters are sharded, so that every pass concerns all ranks.
  Turns(Executor& executor, Communicator& control, bool gathers)
      : executor_(executor), control_(control), gathers_(gathers) {}

  /// One pass a turn: fill the free slots, say what is here, and run what is anywhere; until `next` and the slots are
  /// empty everywhere. What either throws ends the run on all ranks with that error. Collective.
  template <typename Slots, typename Next, typename OnRow>
  void run(Slots& slots, const Next& next, const OnRow& on_row, const char* what) {
    std::optional<Failure> failure;
    bool more = true;
    const auto guarded = [&](const auto& work) {
      try {
        work();
      } catch (const std::exception& error) {
        failure = describe_failure(error);
      }
    };
    while (true) {
      std::vector<SubBatch> parts;
      guarded([&] {
        while (more && !slots.full()) {
          auto row = next();
          more = row.has_value();
          if (row) slots.admit(std::move(*row));
        }
        parts = slots.parts();
      });
      const Agreement agreed = meet(modalities_of(parts), failure.has_value());
      if (agreed.stop || agreed.modalities.empty()) break;
      ++passes_;
      executor_.forward(parts, agreed.modalities);
      guarded([&] {
        for (const auto& row : slots.take(parts)) on_row(row);
      });
    }
    agree_no_failure(control_, what, failure);
  }

  /// Forward passes of this rank so far, those in which it only lent its shards among them.
  int64_t passes() const { return passes_; }

 private:
  /// What is anywhere: only where every pass concerns all ranks is it worth asking them.
  Agreement meet(Modalities here, bool failed) {
    if (!gathers_) return {.modalities = here, .stop = failed};
    return agree(control_, {.modalities = here.bits(), .stop = failed});
  }

  Executor& executor_;
  Communicator& control_;
  bool gathers_;
  int64_t passes_ = 0;
};

}  // namespace lockstep
