// Of many cases that are much alike, as many as LOCKSTEP_TEST_SCALE says: sanitizer builds take the same paths fewer times.
//
// Example:
//   Sampled sampled;
//   for (…) { if (!sampled.takes()) continue; … }    // all of them, or every tenth at a scale of 0.1, the first among them
#pragma once

#include <string>

#include "lockstep/base/env.h"

namespace lockstep {

class Sampled {
 public:
  bool takes() {
    if (due_ < 1) {
      due_ += scale_;
      return false;
    }
    due_ += scale_ - 1;
    return true;
  }

 private:
  double scale_ = std::stod(Env::process().text("LOCKSTEP_TEST_SCALE").value_or("1"));
  double due_ = 1;
};

}  // namespace lockstep
