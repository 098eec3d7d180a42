// Advice for people and for plan.json.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"
#include "lockstep/plan/advice.h"

namespace lockstep {
namespace {

Json change_json(const Change& change) {
  return {{"flags", change.flags}, {"effect", change.effect},
          {"time", change.time},   {"same_training", change.same_training},
          {"peak", change.peak},   {"host_peak", change.host_peak}};
}

std::string change_lines(size_t number, const Change& change) {
  const bool offloads = change.job.options.placement.offload_params || change.job.options.placement.offload_optimizer;
  return fmt::format("  {}. {}\n     peak {}{}, about {:.2f} times as long a step{}: {}\n", number,
                     join(change.flags, " "), format_bytes(change.peak),
                     offloads && change.host_peak > 0
                         ? fmt::format(" and {} of host memory for each rank", format_bytes(change.host_peak))
                         : "",
                     change.time, change.same_training ? "" : ", and another training", change.effect);
}

}  // namespace

std::string Advice::print() const {
  if (!known) return "";
  const std::string of = fmt::format("{} of {}", format_bytes(peak), format_bytes(capacity));
  std::string out;
  if (fits) {
    out = fmt::format("fits: {}\n", of);
    if (lightest) {
      out += fmt::format("  {} fits too ({}) and {}\n", join(lightest->flags, " "), format_bytes(lightest->peak),
                         lightest->effect);
    }
    return out + fmt::format("  the largest micro-batch that fits has about {} rows\n", largest_batch);
  }
  out = fmt::format("does not fit: {}\n", of);
  if (changes.empty() && everything == 0)
    return out + "  no change of flags helps: fewer tokens a row, or more ranks\n";
  if (changes.empty()) {
    return out + fmt::format("  with all that flags can change it needs {}: fewer tokens a row, or more ranks\n",
                             format_bytes(everything));
  }
  out += "what makes it fit, the cheapest first:\n";
  for (size_t i = 0; i < changes.size(); ++i) out += change_lines(i + 1, changes[i]);
  return out;
}

Json Advice::json() const {
  if (!known) return nullptr;
  Json list = Json::array();
  for (const auto& change : changes) list.push_back(change_json(change));
  Json out{{"fits", fits}, {"peak", peak}, {"capacity", capacity}, {"changes", list}};
  if (everything > 0) out["peak_with_all_changes"] = everything;
  if (fits) out["largest_batch"] = largest_batch;
  if (lightest) out["lighter_stage"] = change_json(*lightest);
  return out;
}

}  // namespace lockstep
