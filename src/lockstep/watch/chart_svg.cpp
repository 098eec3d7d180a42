#include "lockstep/watch/chart_svg.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "lockstep/watch/html.h"

namespace lockstep {
namespace {

constexpr double kWidth = 420, kHeight = 190, kLeft = 46, kRight = 10, kTop = 8, kBottom = 24;
constexpr size_t kMaxPoints = 400;

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  bool empty() const { return !(low <= high); }
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

struct Frame {
  Range x, y;
  double px(double value) const {
    return x.high > x.low ? kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight) : kWidth / 2;
  }
  double py(double value) const { return kTop + (y.high - value) / (y.high - y.low) * (kHeight - kTop - kBottom); }
};

// Room above and below, so that a flat line stands in the middle.
void pad(Range& range, bool from_zero) {
  if (from_zero) range.add(0);
  double margin = (range.high - range.low) * 0.06;
  if (margin == 0) margin = range.high == 0 ? 1 : std::abs(range.high) * 0.5;
  if (!(from_zero && range.low == 0)) range.low -= margin;
  range.high += margin;
}

Frame frame_of(const Chart& chart) {
  Frame frame;
  for (const double x : chart.x) frame.x.add(x);
  for (const double x : chart.marks.x) frame.x.add(x);
  for (const auto& series : chart.series) {
    for (const double y : series.y) frame.y.add(y);
  }
  for (const double y : chart.marks.y) frame.y.add(y);
  if (frame.y.empty()) return frame;
  // A loss that is never negative should not get an axis that is.
  const bool never_negative = frame.y.low >= 0;
  pad(frame.y, chart.from_zero);
  if (never_negative) frame.y.low = std::max(frame.y.low, 0.0);
  return frame;
}

std::string path_of(const Frame& frame, const Chart& chart, const Series& series, const std::vector<size_t>& kept) {
  std::string out;
  bool pen_down = false;
  for (const size_t i : kept) {
    if (i >= series.y.size() || !std::isfinite(series.y[i])) {
      pen_down = false;
      continue;
    }
    out += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", frame.px(chart.x[i]), frame.py(series.y[i]));
    pen_down = true;
  }
  return out;
}

std::string axes(const Frame& frame, const Chart& chart) {
  std::string out;
  const double factor = chart.unit == "%" ? 100 : 1;
  for (const double tick : round_ticks(frame.y.low * factor, frame.y.high * factor, 5)) {
    const double y = frame.py(tick / factor);
    out += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", kLeft, kWidth - kRight, y, y);
    out += fmt::format(R"(<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>)", kLeft - 6, y + 3.5,
                       short_number(tick));
  }
  for (const double tick : round_ticks(frame.x.low, frame.x.high, 5)) {
    if (tick != std::floor(tick)) continue;  // there is no half step
    out += fmt::format(R"(<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>)", frame.px(tick),
                       kHeight - 8, short_number(tick));
  }
  return out;
}

// What the pointer shows: per kept step the pixel and each series' text.
std::string tooltip_data(const Frame& frame, const Chart& chart, const std::vector<size_t>& kept) {
  const double factor = chart.unit == "%" ? 100 : 1;
  std::string xs, rows;
  for (const size_t i : kept) {
    xs += fmt::format("{}{:.1f}", xs.empty() ? "" : ",", frame.px(chart.x[i]));
    std::string row = fmt::format("step {:.0f}", chart.x[i]);
    for (const auto& series : chart.series) {
      if (i < series.y.size() && std::isfinite(series.y[i])) {
        row += fmt::format("\n{} {:.4g}{}", series.name, series.y[i] * factor,
                           chart.unit.empty() || chart.unit == "%" ? chart.unit : " " + chart.unit);
      }
    }
    rows += (rows.empty() ? "" : "|") + row;
  }
  return fmt::format(R"( data-x="{}" data-text="{}")", xs, escape_html(rows));
}

std::string legend(const Chart& chart) {
  if (chart.series.size() + (chart.marks.x.empty() ? 0 : 1) < 2) return {};
  std::string out = R"(<span class="legend">)";
  for (const auto& series : chart.series) {
    out += fmt::format(R"(<span><i class="key s{}{}{}"></i>{}</span>)", series.colour, series.dashed ? " dashed" : "",
                       series.faint ? " faint" : "", escape_html(series.name));
  }
  if (!chart.marks.x.empty()) {
    out +=
        fmt::format(R"(<span><i class="key dot s{}"></i>{}</span>)", chart.marks.colour, escape_html(chart.marks.name));
  }
  return out + "</span>";
}

}  // namespace

std::vector<size_t> thin(const std::vector<double>& y, size_t limit) {
  std::vector<size_t> kept;
  const size_t buckets = std::max<size_t>(limit / 2, 1);
  if (y.size() <= limit) {
    for (size_t i = 0; i < y.size(); ++i) kept.push_back(i);
    return kept;
  }
  kept.push_back(0);
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const size_t begin = bucket * y.size() / buckets, end = (bucket + 1) * y.size() / buckets;
    size_t low = begin, high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (!(y[i] >= y[low])) low = i;
      if (!(y[i] <= y[high])) high = i;
    }
    for (const size_t i : {std::min(low, high), std::max(low, high)}) {
      if (i > kept.back()) kept.push_back(i);
    }
  }
  if (kept.back() + 1 < y.size()) kept.push_back(y.size() - 1);
  return kept;
}

std::vector<double> round_ticks(double low, double high, int count) {
  if (!(high > low) || count < 1) return {low};
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double nice : {5.0, 2.0, 1.0}) {
    if (nice * power >= rough) step = nice * power;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step); i * step <= high && ticks.size() < 20; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size < 1e-12) return "0";
  if (size >= 1e9) return fmt::format("{:.3g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.3g}K", value / 1e3);
  if (size >= 1e-3) return fmt::format("{:.4g}", value);
  const int exponent = static_cast<int>(std::floor(std::log10(size) + 1e-9));
  return fmt::format("{:.3g}e{}", value / std::pow(10.0, exponent), exponent);
}

std::string render_chart(const Chart& chart) {
  const Frame frame = frame_of(chart);
  if (frame.y.empty() || frame.x.empty()) return {};
  const auto kept = chart.series.empty() ? std::vector<size_t>() : thin(chart.series.front().y, kMaxPoints);
  std::string out =
      fmt::format("<figure><figcaption><b>{}</b>{}{}</figcaption>", escape_html(chart.title),
                  chart.unit.empty() ? "" : "<small>" + escape_html(chart.unit) + "</small>", legend(chart));
  out += fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{} over steps"{}>)", kWidth, kHeight,
                     escape_html(chart.title), tooltip_data(frame, chart, kept));
  out += axes(frame, chart);
  for (const auto& series : chart.series) {
    out += fmt::format(R"(<path class="line s{}{}{}" d="{}"/>)", series.colour, series.dashed ? " dashed" : "",
                       series.faint ? " faint" : "", path_of(frame, chart, series, kept));
    if (kept.size() == 1 && std::isfinite(series.y[0])) {
      out += fmt::format(R"(<circle class="dot s{}" r="3" cx="{:.1f}" cy="{:.1f}"/>)", series.colour,
                         frame.px(chart.x[0]), frame.py(series.y[0]));
    }
  }
  for (size_t i = 0; i < chart.marks.x.size(); ++i) {
    if (!std::isfinite(chart.marks.y[i])) continue;
    out += fmt::format(
        R"(<circle class="dot s{}" r="3.2" cx="{:.1f}" cy="{:.1f}"><title>step {:.0f}: {:.4g}</title></circle>)",
        chart.marks.colour, frame.px(chart.marks.x[i]), frame.py(chart.marks.y[i]), chart.marks.x[i], chart.marks.y[i]);
  }
  out += fmt::format(R"(<line class="cursor" y1="{}" y2="{}" visibility="hidden"/></svg></figure>)", kTop,
                     kHeight - kBottom);
  return out + "\n";
}

}  // namespace lockstep
