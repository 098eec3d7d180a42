#include "lockstep/guard/diagnosis.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr size_t kStackLines = 12;

std::string first_lines(const std::string& text, size_t count) {
  size_t end = 0;
  for (size_t line = 0; line < count && end != std::string::npos; ++line) end = text.find('\n', end + 1);
  return text.substr(0, end);
}

/// A titled entry; further lines of it stand below the first.
void entry(std::string& out, std::string_view title, std::string text) {
  if (text.empty()) return;
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 10) text.replace(at, 1, "\n          ");
  out += fmt::format("\n  {:<7} {}", title, text);
}

}  // namespace

std::string_view fault_name(Fault fault) {
  static constexpr std::array<std::string_view, 13> kNames{"mismatch",  "lines",     "nan",     "facts",     "error",
                                                           "death",     "early end", "stopped", "lost node", "deadlock",
                                                           "transport", "stall",     "absent"};
  return kNames.at(static_cast<size_t>(fault));
}

std::array<double, kPhases> JudgeOptions::default_patience() {
  std::array<double, kPhases> all{};
  all.fill(600);
  return all;
}

std::string Diagnosis::text() const {
  std::string out = headline;
  if (!sides.empty()) {
    std::string call = seq > 0 ? fmt::format("#{} of group \"{}\"", seq, group) : std::string();
    size_t widest = 0;
    for (const auto& side : sides) widest = std::max(widest, side.ranks.phrase().size());
    for (const auto& side : sides) {
      call += fmt::format("{}{:<{}}  {}{}{}", call.empty() ? "" : "\n", side.ranks.phrase(), widest, side.call,
                          side.site.empty() ? "" : "  at ", side.site);
    }
    entry(out, "call", call);
  }
  entry(out, "place", fmt::format("{}", fmt::join(places, "\n")));
  entry(out, "stack", first_lines(stack, kStackLines));
  entry(out, "why", why);
  entry(out, "fix", fix);
  return out;
}

Json to_json(const Diagnosis& diagnosis) {
  Json sides = Json::array();
  for (const auto& side : diagnosis.sides) {
    sides.push_back({{"ranks", side.ranks.ranks()}, {"call", side.call}, {"site", side.site}});
  }
  return {{"fault", std::string(fault_name(diagnosis.fault))},
          {"culprits", diagnosis.culprits.ranks()},
          {"between_two", diagnosis.between_two},
          {"headline", diagnosis.headline},
          {"group", diagnosis.group},
          {"seq", diagnosis.seq},
          {"op", diagnosis.op},
          {"label", diagnosis.label},
          {"sides", std::move(sides)},
          {"places", diagnosis.places},
          {"why", diagnosis.why},
          {"fix", diagnosis.fix},
          {"stack", diagnosis.stack},
          {"hint", diagnosis.error_hint},
          {"exit_code", diagnosis.exit_code},
          {"text", diagnosis.text()}};
}

}  // namespace lockstep
