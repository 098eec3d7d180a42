// Of many cases that are much alike, as many as LOCKSTEP_TEST_SCALE says: sanitizer builds take the same paths fewer times.
//
// Example:
//   Sampled sampled;
//   for (…) { if (!sampled.takes()) continue; … }    // all of them, or every tenth at a scale of 0.1, the first among them
#pragma once

#include <cstdlib>
#include <string>

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
  static double scale() {
    const char* text = std::getenv("LOCKSTEP_TEST_SCALE");
    return text == nullptr ? 1.0 : std::stod(text);
  }

  double scale_ = scale();
  double due_ = 1;
};

}  // namespace lockstep
