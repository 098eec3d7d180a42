// Which rank was the first to give NaN to a call whose results all ranks take over.
#include <fmt/format.h>

#include "lockstep/guard/judge_rules.h"
#include "lockstep/guard/structure.h"

namespace lockstep {
namespace {

constexpr int64_t kRemarkComesNs = 300'000'000;

struct First {
  const RankClass* ranks = nullptr;
  const GroupReport* group = nullptr;
  const FlightRecord* call = nullptr;
};

First first_nan(const Census& census) {
  First first;
  for (const auto& one : census.classes) {
    for (const auto& group : one.sample.groups) {
      for (const auto& call : group.tail) {
        if (call.has_nan == 0 || (first.call != nullptr && first.call->entered_ns <= call.entered_ns)) continue;
        first = {&one, &group, &call};
      }
    }
  }
  return first;
}

}  // namespace

Judgement judge_nan(const Census& census) {
  const First first = first_nan(census);
  if (first.call == nullptr) return {};
  RankSet with, without;
  Diagnosis out{
      .fault = Fault::kNan, .group = first.group->name, .seq = first.call->seq, .exit_code = kCommunicationCode};
  for (const auto& one : census.classes) {
    for (const auto& group : one.sample.groups) {
      const FlightRecord* call = group.name == first.group->name ? group.find(first.call->seq) : nullptr;
      if (call == nullptr) continue;
      (call->has_nan != 0 ? with : without).add(one.ranks);
      if (call->has_nan != 0) out.places.push_back(place_of(one));
    }
  }
  const RankReport& sample = first.ranks->sample;
  if (without.empty() || (sample.read_ns - first.call->entered_ns < kRemarkComesNs && !sample.over())) return {};
  const FlightRecord& call = *first.call;
  out.culprits = with;
  out.op = op_name(call.signature.op);
  out.label = call.label.view();
  out.headline =
      fmt::format("{} gave NaN to {}; what {} gave are numbers", with.phrase(), call.call(), without.phrase());
  out.sides.push_back({with, call.call(), std::string(call.site.view())});
  for (const auto& text : sample.structures) {
    const auto remark = structure_from(text);
    if (remark && remark->label == kNanRemark) out.headline += ": " + remark->note;
  }
  out.why = "all ranks take over the result, so that from here on none of them has numbers";
  out.fix = fmt::format(
      "look at the rows, the loss and the gradients of {} in this step ({}); with a gradient scaler that skips such "
      "steps this is as it should be",
      with.phrase(), call.site.view());
  return {.verdict = Verdict::kNotice, .diagnosis = std::move(out)};
}

}  // namespace lockstep
