#include "lockstep/guard/absence.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/machine.h"
#include "lockstep/base/text_format.h"
#include "lockstep/guard/judge_rules.h"

namespace lockstep {
namespace {

constexpr double kConsequencesShow = 15;  // seconds after the return

/// What others of the job did, or a connection that they have closed.
bool may_follow(const Diagnosis& found, const RankSet& own) {
  switch (found.fault) {
    case Fault::kLostNode:
    case Fault::kTransport:
      return true;
    case Fault::kError:
      return found.exit_code == kCommunicationCode;
    case Fault::kDeath:
    case Fault::kEarlyEnd:
      return found.culprits.within(own).empty();
    default:
      return false;
  }
}

}  // namespace

std::chrono::nanoseconds absence_clock() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::optional<double> Absence::look(std::chrono::nanoseconds now) {
  const auto before = std::exchange(looked_, now);
  if (!before || now - *before < kNoticed) return std::nullopt;
  returned_ = now;
  seconds_ = std::chrono::duration<double>(now - *before).count();
  return seconds_;
}

double Absence::seconds_since_return(std::chrono::nanoseconds now) const {
  return std::chrono::duration<double>(now - *returned_).count();
}

JudgeOptions Absence::allowing(const JudgeOptions& options, std::chrono::nanoseconds now) const {
  JudgeOptions out = options;
  const double longest = *std::ranges::max_element(options.hard_seconds);
  if (!returned_ || seconds_since_return(now) > longest) return out;
  for (double& seconds : out.hard_seconds) seconds += seconds_;
  out.soft_seconds += seconds_;
  out.start_seconds += seconds_;
  return out;
}

Diagnosis Absence::explained(Diagnosis found, const Node& own, std::chrono::nanoseconds now) const {
  if (!returned_ || own.num_nodes < 2 || seconds_since_return(now) > kConsequencesShow || !may_follow(found, own.ranks))
    return found;
  Diagnosis out{.fault = Fault::kLostNode, .culprits = own.ranks, .exit_code = kCommunicationCode};
  out.headline = fmt::format("node {} ({}) was away for {}: {}", own.number, host_name(), format_duration(seconds_),
                             own.ranks.phrase());
  out.why = fmt::format(
      "none of its processes, its agent among them, did anything for so long: SIGSTOP, a paused container or virtual "
      "machine, a suspended host; the others have given it up meanwhile ({})",
      found.headline);
  out.fix =
      "look at what paused this host (the batch system, the hypervisor, its log); then go on from the last checkpoint";
  out.group = std::move(found.group);
  out.seq = found.seq;
  out.sides = std::move(found.sides);
  out.places = std::move(found.places);
  out.op = std::move(found.op);
  out.label = std::move(found.label);
  return out;
}

}  // namespace lockstep
