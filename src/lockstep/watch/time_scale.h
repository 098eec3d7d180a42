// Moments to positions on a drawing, where long silences are cut short: a wait of minutes would otherwise push the
// thousand calls before it into one pixel.
#pragma once

#include <vector>

namespace lockstep {

class TimeScale {
 public:
  /// A silence that is drawn shorter than it was; positions are shares of the width.
  struct Break {
    double from = 0, to = 0;
    double seconds = 0;
  };
  struct Tick {
    double at = 0;  // a share of the width
    double seconds = 0;
  };

  /// `events`: moments in seconds, in any order; what lies outside of [from, to] is ignored.
  TimeScale(std::vector<double> events, double from, double to);

  /// In [0, 1], never falling.
  double at(double seconds) const;
  const std::vector<Break>& breaks() const { return breaks_; }
  /// Round moments with room for their names, about `count` of them over the whole width.
  std::vector<Tick> ticks(int count) const;

 private:
  struct Knot {
    double seconds, at;
  };
  std::vector<Knot> knots_;  // ascending in both
  std::vector<Break> breaks_;
};

}  // namespace lockstep
