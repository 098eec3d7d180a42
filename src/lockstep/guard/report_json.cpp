// Reports as JSON: what travels between agents and what a post-mortem keeps.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "lockstep/base/json_fields.h"
#include "lockstep/guard/packed_calls.h"
#include "lockstep/guard/report.h"

namespace lockstep {
namespace {

constexpr size_t kMaxTail = FlightRing::kSize, kMaxGroups = Board::kGroups, kMaxRanges = 1 << 16, kMaxStructures = 16;
constexpr std::string_view kReport = "a report of a rank";

void time_of(JsonFields& f, const char* key, int64_t& time) {
  f(key, time);
  if (!f.writing()) time = bounded(time);
}

/// A hash: written with its sign.
void word(JsonFields& f, const char* key, uint64_t& hash) {
  auto value = static_cast<int64_t>(hash);
  f(key, value);
  hash = static_cast<uint64_t>(value);
}

template <typename Enum>
void number_of(JsonFields& f, const char* key, Enum& value, Enum last) {
  auto number = static_cast<int64_t>(value);
  f(key, number);
  if (!f.writing() && (number < 0 || number > static_cast<int64_t>(last))) f.refuse(key);
  value = static_cast<Enum>(number);
}

template <size_t N>
void text(JsonFields& f, const char* key, FixedText<N>& value) {
  std::string whole(value.view());
  f(key, whole);
  value = FixedText<N>(whole);
}

Json signature_json(const CallSignature& signature) {
  return {static_cast<int>(signature.op),
          static_cast<int>(signature.reduce),
          signature.root,
          std::string(signature.dtype_text()),
          std::vector<int64_t>(signature.dims.begin(),
                               signature.dims.begin() + std::min<size_t>(signature.num_dims, CallSignature::kDims)),
          signature.has_splits != 0 ? Json(static_cast<int64_t>(signature.splits)) : Json(nullptr)};
}

/// Nothing: it is not whole.
std::optional<CallSignature> signature_from(const Json& json) {
  const bool whole = json.is_array() && json.size() == 6 && json[0].is_number_integer() &&
                     json[1].is_number_integer() && json[2].is_number_integer() && json[3].is_string() &&
                     json[4].is_array() && json[4].size() <= CallSignature::kDims &&
                     (json[5].is_null() || json[5].is_number_integer());
  if (!whole) return std::nullopt;
  std::vector<int64_t> dims;
  for (const auto& dim : json[4]) {
    if (!dim.is_number_integer()) return std::nullopt;
    dims.push_back(dim.get<int64_t>());
  }
  CallSignature signature =
      CallSignature::of(static_cast<Op>(json[0].get<uint8_t>()), json[3].get_ref<const std::string&>(), dims);
  signature.reduce = static_cast<ReduceOp>(json[1].get<uint8_t>());
  signature.root = json[2].get<int32_t>();
  signature.has_splits = json[5].is_null() ? 0 : 1;
  signature.splits = json[5].is_null() ? 0 : static_cast<uint64_t>(json[5].get<int64_t>());
  return signature;
}

}  // namespace

static void describe(FlightRecord& record, JsonFields& f) {
  f("seq", record.seq);
  word(f, "history", record.history);
  f.derived("signature", signature_json(record.signature));
  text(f, "label", record.label);
  text(f, "site", record.site);
  f("step", record.step);
  f("has_nan", record.has_nan);
  number_of(f, "state", record.state, CallState::kFailed);
  time_of(f, "entered_ns", record.entered_ns);
  time_of(f, "done_ns", record.done_ns);
  if (const Json* json = f.raw("signature")) {
    const auto signature = signature_from(*json);
    if (!signature) f.refuse("signature");
    record.signature = *signature;
  }
}

static void describe(GroupReport& group, JsonFields& f) {
  f("name", group.name);
  f.derived("members", Json(group.members.ranges()));
  if (const Json* members = f.raw("members")) {
    const auto ranks = ranks_from_json(*members);
    if (!ranks) f.refuse("members");
    group.members = *ranks;
  }
  f("entered", group.entered);
  word(f, "history", group.history);
  word(f, "path", group.path);
  word(f, "nan_calls", group.nan_calls);
  f("waiting_seq", group.waiting_seq);
  f("waiting_seconds", group.waiting_seconds);
  f("last_waiting_seconds", group.last_waiting_seconds);
  f("stands", group.stands);
  f("left", group.left);
  f("patience_seconds", group.patience_seconds);
  f.derived("calls", Json());  // to_json of the report knows in which form
  const Json* calls = f.raw("calls");
  if (calls == nullptr) return;
  if (calls->is_object()) {
    group.tail = unpacked_calls(*calls);
  } else {
    f.list("calls", group.tail, kMaxTail);
  }
  if (!std::ranges::is_sorted(group.tail, {}, &FlightRecord::seq)) f.refuse("calls");
}

static void describe(LastWordsReport& words, JsonFields& f) {
  f("exit_code", words.exit_code);
  time_of(f, "at_ns", words.at_ns);
  f("secondary", words.secondary);
  f("shared", words.shared);
  f("message", words.message);
  f("hint", words.hint);
  f("place", words.place);
}

static void describe(Pace& pace, JsonFields& f) {
  std::vector<int64_t> phase_ns(pace.phase_ns.begin(), pace.phase_ns.end());
  time_of(f, "steps", pace.steps);
  f("step_ns", pace.step_ns);
  f.list("phase_ns", phase_ns, kPhases);
  f("waiting_ns", pace.waiting_ns);
  std::ranges::copy(phase_ns, pace.phase_ns.begin());
}

static void describe(ProcessEnd& end, JsonFields& f) {
  f("known", end.known);
  f("out_of_memory", end.out_of_memory);
  f("exit_code", end.exit_code);
  f("signal", end.signal);
}

static void describe(RankReport& report, JsonFields& f) {
  f("rank", report.rank);
  f("node", report.node);
  f("local_rank", report.local_rank);
  f("world_size", report.world_size);
  f("pid", report.pid);
  f("host", report.host);
  f("joined", report.joined);
  f("unreachable", report.unreachable);
  number_of(f, "life", report.life, Life::kFinished);
  f("exit_code", report.exit_code);
  number_of(f, "process", report.process.state, ProcessState::kGone);
  f("in_kernel", report.process.in_kernel);
  f("waits_in", report.process.waits_in);
  f("resident_bytes", report.process.resident_bytes);
  f("peak_resident_bytes", report.process.peak_resident_bytes);
  f("end", report.end);
  f("stopped_seconds", report.stopped_seconds);
  f("gone_seconds", report.gone_seconds);
  f.optional("aborting_seconds", report.aborting_seconds, report.aborting_seconds > 0);
  f.optional("asked_seconds", report.asked_seconds, report.asked_seconds > 0);
  number_of(f, "phase", report.phase, Phase::kEnd);
  f("detail", report.detail);
  f("phase_seconds", report.phase_seconds);
  f("step", report.step);
  f("pace", report.pace);
  f.list("groups", report.groups, kMaxGroups);
  f.optional("no_room", report.no_room, report.no_room != 0);
  f("last_words", report.last_words);
  f("facts", report.facts);
  f("stack", report.stack);
  f.list("structures", report.structures, kMaxStructures);
  f("post_mortem_dir", report.post_mortem_dir);
  time_of(f, "read_ns", report.read_ns);
  time_of(f, "realtime_offset_ns", report.realtime_offset_ns);
  if (f.writing()) return;
  if (report.rank < 0 || report.rank > kMaxRanks) f.refuse("rank");
  if (report.world_size < 0 || report.world_size > kMaxRanks) f.refuse("world_size");
}

std::optional<RankSet> ranks_from_json(const Json& ranges) {
  if (!ranges.is_array() || ranges.size() > kMaxRanges) return std::nullopt;
  RankSet ranks;
  for (const auto& range : ranges) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_integer() || !range[1].is_number_integer()) {
      return std::nullopt;
    }
    const auto first = range[0].get<int64_t>(), last = range[1].get<int64_t>();
    if (first < 0 || last < first || last > kMaxRanks) return std::nullopt;
    ranks.add_stretch(static_cast<int>(first), static_cast<int>(last));
  }
  return ranks;
}

Json to_json(const FlightRecord& record) { return json_of(record); }
FlightRecord record_from_json(const Json& json) {
  return record_of<FlightRecord>(json, JsonReading::kDistrustful, kReport);
}

Json to_json(const RankReport& report, Calls calls) {
  Json json = json_of(report);
  for (size_t i = 0; i < report.groups.size(); ++i) {
    const auto& tail = report.groups[i].tail;
    Json& told = json["groups"][i]["calls"] = Json::array();
    if (calls == Calls::kPacked) told = packed_calls(tail);
    for (size_t c = 0; calls == Calls::kPlain && c < tail.size(); ++c) told.push_back(to_json(tail[c]));
  }
  return json;
}

RankReport report_from_json(const Json& json) {
  return record_of<RankReport>(json, JsonReading::kDistrustful, kReport);
}

}  // namespace lockstep
