#include "lockstep/guard/splits.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/guard/judge_rules.h"
#include "lockstep/guard/who_waits.h"

namespace lockstep {
namespace {

template <typename Number>
bool read_numbers(const Json& json, const char* key, std::vector<Number>& out) {
  const auto at = json.find(key);
  if (at == json.end() || !at->is_array() || at->size() > Splits::kMost) return false;
  for (const auto& one : *at) {
    if (!one.is_number_integer()) return false;
    out.push_back(one.get<Number>());
  }
  return true;
}

/// Of one rank, with the call that it stands beside.
struct Shown {
  Splits splits;
  const FlightRecord* call;
  const RankClass* of;
};

std::vector<Shown> all_shown(const Census& census) {
  std::vector<Shown> all;
  for (const auto& one : census.classes) {
    for (const auto& text : one.sample.structures) {
      auto splits = splits_from(text);
      const GroupReport* group = splits ? group_named(one.sample, splits->group) : nullptr;
      const FlightRecord* call = group == nullptr ? nullptr : group->find(splits->seq);
      if (call == nullptr || call->signature.op != Op::kAllToAll || !one.ranks.contains(splits->rank)) continue;
      all.push_back({std::move(*splits), call, &one});
    }
  }
  return all;
}

struct Unequal {
  const Shown *from, *to;
  int64_t sent, taken;
};

std::optional<Unequal> between(const Shown& from, const Shown& to) {
  const Splits &a = from.splits, &b = to.splits;
  if (a.rank == b.rank || a.group != b.group || a.seq != b.seq || a.ranks != b.ranks) return std::nullopt;
  if (from.call->history != to.call->history) return std::nullopt;  // not the same call
  const auto place = [&](int rank) { return static_cast<size_t>(std::ranges::find(a.ranks, rank) - a.ranks.begin()); };
  const size_t sender = place(a.rank), receiver = place(b.rank);
  if (receiver >= a.sends.size() || sender >= b.receives.size()) return std::nullopt;
  const int64_t sent = a.sends[receiver], taken = b.receives[sender];
  return sent == taken ? std::nullopt : std::make_optional(Unequal{&from, &to, sent, taken});
}

}  // namespace

/// Two in turn: a rank whose own sizes fit goes on to its next call while another is still in this one.
std::string splits_label(const Splits& splits) { return fmt::format("{}{}", kSplits, splits.seq % 2); }

std::string splits_text(const Splits& splits) {
  return fmt::format(
      R"({{"label":"{}","nodes":[],"rank":{},"group":{},"seq":{},"ranks":[{}],"sends":[{}],"receives":[{}]}})",
      splits_label(splits), splits.rank, Json(splits.group).dump(-1, ' ', false, Json::error_handler_t::replace),
      splits.seq, fmt::join(splits.ranks, ","), fmt::join(splits.sends, ","), fmt::join(splits.receives, ","));
}

std::optional<Splits> splits_from(const std::string& text) {
  if (text.find(kSplits) == std::string::npos) return std::nullopt;
  const Json json = parse_json_or_discard(text);
  if (!json.is_object() || !json.contains("label") || !json.contains("rank") || !json.contains("group") ||
      !json.contains("seq")) {
    return std::nullopt;
  }
  const Json &label = json.at("label"), &rank = json.at("rank"), &group = json.at("group"), &seq = json.at("seq");
  if (!label.is_string() || !label.get<std::string>().starts_with(kSplits)) return std::nullopt;
  if (!rank.is_number_integer() || !group.is_string() || !seq.is_number_integer()) return std::nullopt;
  Splits out{.rank = rank.get<int>(), .group = group.get<std::string>(), .seq = seq.get<uint64_t>()};
  const bool whole = read_numbers(json, "ranks", out.ranks) && read_numbers(json, "sends", out.sends) &&
                     read_numbers(json, "receives", out.receives);
  return whole ? std::make_optional(std::move(out)) : std::nullopt;
}

std::optional<Diagnosis> differing_splits(const Census& census) {
  const std::vector<Shown> all = all_shown(census);
  std::vector<Unequal> found;
  for (const auto& from : all) {
    for (const auto& to : all) {
      if (auto one = between(from, to)) found.push_back(*one);
    }
  }
  if (found.empty()) return std::nullopt;
  const Unequal& first = found.front();
  const Shown &from = *first.from, &to = *first.to;
  Diagnosis out{.fault = Fault::kMismatch,
                .group = from.splits.group,
                .seq = from.splits.seq,
                .exit_code = static_cast<int>(ExitCode::kCommunication)};
  // One that fits with none of several is the one that is wrong.
  for (const int rank : {from.splits.rank, to.splits.rank}) {
    const auto concerns = [rank](const Unequal& one) {
      return one.from->splits.rank == rank || one.to->splits.rank == rank;
    };
    if (found.size() == 1 || std::ranges::all_of(found, concerns)) out.culprits.add(rank);
  }
  if (out.culprits.empty()) out.culprits = RankSet{from.splits.rank, to.splits.rank};
  out.between_two = out.culprits.size() == 2;
  out.op = op_name(Op::kAllToAll);
  out.label = from.call->label.view();
  out.headline = fmt::format("rank {} sends {} numbers to rank {} in all_to_all, which takes {} from it",
                             from.splits.rank, first.sent, to.splits.rank, first.taken);
  for (const Shown* side : {&from, &to}) {
    const Splits& own = side->splits;
    out.sides.push_back(
        {RankSet{own.rank},
         fmt::format("all_to_all, sends [{}], takes [{}]", fmt::join(own.sends, ", "), fmt::join(own.receives, ", ")),
         std::string(side->call->site.view())});
    out.places.push_back(fmt::format("rank {}: {}", own.rank, side->of->sample.place()));
  }
  out.why =
      "what goes from one rank to another must be as much as that one takes: the transport aborts, waits, or hands out "
      "a part";
  if (found.size() > 1) out.why += fmt::format("; {} more pairs of ranks do not fit either", found.size() - 1);
  out.fix = fmt::format(
      "let b take what a sends: output_split_sizes[a] of rank b is input_split_sizes[b] of rank a (exchange the counts "
      "first, by an "
      "all_to_all of them), at {}",
      from.call->site.view());
  return out;
}

}  // namespace lockstep
