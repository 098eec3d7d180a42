// Line charts as SVG text: axes with round numbers, thin lines, a data attribute that the page's script reads for its
// pointer tooltip. Colours come from the page's style sheet (classes s0..s7).
//
// Example:
//   html += render_chart({.title = "Loss", .x = steps, .series = {{.name = "loss", .y = losses, .colour = 0}}});
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct Series {
  std::string name;
  std::vector<double> y;  // one a chart x; what is not finite leaves a gap
  int colour = 0;         // 0..7
  bool dashed = false, faint = false;
};

/// Points with their own x: evaluations over a loss curve.
struct Marks {
  std::string name;
  std::vector<double> x, y;
  int colour = 1;
};

struct Chart {
  std::string title, unit;  // unit may be empty; "%" multiplies by 100
  std::vector<double> x;    // ascending steps
  std::vector<Series> series;
  Marks marks;
  bool from_zero = false;
};

/// A <figure> with title, legend (when there is more than one line) and the drawing; "" when there is nothing finite.
std::string render_chart(const Chart& chart);

/// At most about `limit` indices of `y` that keep each range's lowest and highest value, ascending.
std::vector<size_t> thin(const std::vector<double>& y, size_t limit);

/// Round numbers that cover [low, high], about `count` of them.
std::vector<double> round_ticks(double low, double high, int count);

/// "1.5K", "0.0001" -> "1e-4": short enough for an axis.
std::string short_number(double value);

}  // namespace lockstep
