// Reports as JSON: what travels between agents and what a post-mortem keeps.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/guard/packed_calls.h"
#include "lockstep/guard/report.h"

namespace lockstep {
namespace {

constexpr size_t kMaxText = 8192, kMaxTail = FlightRing::kSize, kMaxGroups = Board::kGroups;

Error malformed(std::string_view what) {
  return Error(ExitCode::kCommunication, fmt::format("a report of a rank: \"{}\" is missing or of another kind", what));
}

const Json& member(const Json& json, const char* name) {
  const auto at = json.is_object() ? json.find(name) : json.end();
  if (!json.is_object() || at == json.end()) throw malformed(name);
  return *at;
}

template <typename T>
T number(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_number() && !value.is_boolean()) throw malformed(name);
  if constexpr (std::is_floating_point_v<T>) {
    if (!value.is_number()) throw malformed(name);
    return value.get<T>();
  } else {
    if (value.is_number_float()) throw malformed(name);
    return value.is_boolean() ? static_cast<T>(value.get<bool>()) : static_cast<T>(value.get<int64_t>());
  }
}

int64_t time_of(const Json& json, const char* name) { return bounded(number<int64_t>(json, name)); }

uint64_t word(const Json& json, const char* name) { return static_cast<uint64_t>(number<int64_t>(json, name)); }

std::string text(const Json& json, const char* name) {
  const Json& value = member(json, name);
  if (!value.is_string()) throw malformed(name);
  return value.get_ref<const std::string&>().substr(0, kMaxText);
}

const Json& list(const Json& json, const char* name, size_t most) {
  const Json& value = member(json, name);
  if (!value.is_array() || value.size() > most) throw malformed(name);
  return value;
}

template <typename Enum>
Enum named_value(const Json& json, const char* name, Enum last) {
  const auto value = number<int64_t>(json, name);
  if (value < 0 || value > static_cast<int64_t>(last)) throw malformed(name);
  return static_cast<Enum>(value);
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

CallSignature signature_from(const Json& json) {
  const bool whole = json.is_array() && json.size() == 6 && json[0].is_number_integer() &&
                     json[1].is_number_integer() && json[2].is_number_integer() && json[3].is_string() &&
                     json[4].is_array() && json[4].size() <= CallSignature::kDims &&
                     (json[5].is_null() || json[5].is_number_integer());
  if (!whole) throw malformed("signature");
  std::vector<int64_t> dims;
  for (const auto& dim : json[4]) {
    if (!dim.is_number_integer()) throw malformed("signature");
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

Json to_json(const GroupReport& group, Calls calls) {
  Json tail = calls == Calls::kPacked ? packed_calls(group.tail) : Json::array();
  for (size_t i = 0; calls == Calls::kPlain && i < group.tail.size(); ++i) tail.push_back(to_json(group.tail[i]));
  return {{"name", group.name},
          {"entered", group.entered},
          {"history", static_cast<int64_t>(group.history)},
          {"waiting_seq", group.waiting_seq},
          {"waiting_seconds", group.waiting_seconds},
          {"calls", std::move(tail)}};
}

GroupReport group_from(const Json& json) {
  GroupReport group{.name = text(json, "name"),
                    .entered = word(json, "entered"),
                    .history = word(json, "history"),
                    .waiting_seq = word(json, "waiting_seq"),
                    .waiting_seconds = number<double>(json, "waiting_seconds")};
  if (member(json, "calls").is_object()) {
    group.tail = unpacked_calls(member(json, "calls"));
  } else {
    for (const auto& record : list(json, "calls", kMaxTail)) group.tail.push_back(record_from_json(record));
  }
  const auto before = [](const FlightRecord& a, const FlightRecord& b) { return a.seq < b.seq; };
  if (!std::is_sorted(group.tail.begin(), group.tail.end(), before)) throw malformed("calls");
  return group;
}

Json to_json(const LastWordsReport& words) {
  return {{"exit_code", words.exit_code}, {"at_ns", words.at_ns},     {"secondary", words.secondary},
          {"shared", words.shared},       {"message", words.message}, {"hint", words.hint},
          {"place", words.place}};
}

LastWordsReport words_from(const Json& json) {
  return {.exit_code = number<int>(json, "exit_code"),
          .at_ns = time_of(json, "at_ns"),
          .secondary = number<bool>(json, "secondary"),
          .shared = number<bool>(json, "shared"),
          .message = text(json, "message"),
          .hint = text(json, "hint"),
          .place = text(json, "place")};
}

Json to_json(const Pace& pace) {
  return {{"steps", pace.steps},
          {"step_ns", pace.step_ns},
          {"phase_ns", std::vector<int64_t>(pace.phase_ns.begin(), pace.phase_ns.end())},
          {"waiting_ns", pace.waiting_ns}};
}

Pace pace_from(const Json& json) {
  Pace pace{.steps = time_of(json, "steps"), .step_ns = number<int64_t>(json, "step_ns")};
  pace.waiting_ns = number<int64_t>(json, "waiting_ns");
  const Json& phases = list(json, "phase_ns", kPhases);
  for (size_t i = 0; i < phases.size(); ++i) {
    if (!phases[i].is_number_integer()) throw malformed("phase_ns");
    pace.phase_ns[i] = phases[i].get<int64_t>();
  }
  return pace;
}

Json to_json(const ProcessEnd& end) {
  return {
      {"known", end.known}, {"out_of_memory", end.out_of_memory}, {"exit_code", end.exit_code}, {"signal", end.signal}};
}

}  // namespace

Json to_json(const FlightRecord& record) {
  return {{"seq", record.seq},
          {"history", static_cast<int64_t>(record.history)},
          {"signature", signature_json(record.signature)},
          {"label", std::string(record.label.view())},
          {"site", std::string(record.site.view())},
          {"step", record.step},
          {"state", static_cast<int>(record.state)},
          {"entered_ns", record.entered_ns},
          {"done_ns", record.done_ns}};
}

FlightRecord record_from_json(const Json& json) {
  return {.seq = word(json, "seq"),
          .history = word(json, "history"),
          .signature = signature_from(member(json, "signature")),
          .label = FixedText<80>(text(json, "label")),
          .site = FixedText<48>(text(json, "site")),
          .step = number<int64_t>(json, "step"),
          .entered_ns = time_of(json, "entered_ns"),
          .state = named_value(json, "state", CallState::kFailed),
          .done_ns = time_of(json, "done_ns")};
}

Json to_json(const RankReport& report, Calls calls) {
  Json groups = Json::array();
  for (const auto& group : report.groups) groups.push_back(to_json(group, calls));
  return {{"rank", report.rank},
          {"node", report.node},
          {"local_rank", report.local_rank},
          {"world_size", report.world_size},
          {"pid", report.pid},
          {"host", report.host},
          {"joined", report.joined},
          {"unreachable", report.unreachable},
          {"life", static_cast<int>(report.life)},
          {"exit_code", report.exit_code},
          {"process", static_cast<int>(report.process.state)},
          {"in_kernel", report.process.in_kernel},
          {"waits_in", report.process.waits_in},
          {"resident_bytes", report.process.resident_bytes},
          {"peak_resident_bytes", report.process.peak_resident_bytes},
          {"end", to_json(report.end)},
          {"stopped_seconds", report.stopped_seconds},
          {"gone_seconds", report.gone_seconds},
          {"phase", static_cast<int>(report.phase)},
          {"detail", report.detail},
          {"phase_seconds", report.phase_seconds},
          {"step", report.step},
          {"pace", to_json(report.pace)},
          {"groups", std::move(groups)},
          {"last_words", report.last_words ? to_json(*report.last_words) : Json(nullptr)},
          {"facts", report.facts},
          {"stack", report.stack},
          {"post_mortem_dir", report.post_mortem_dir},
          {"read_ns", report.read_ns},
          {"realtime_offset_ns", report.realtime_offset_ns}};
}

RankReport report_from_json(const Json& json) {
  const Json& end = member(json, "end");
  RankReport report{.rank = number<int>(json, "rank"),
                    .node = number<int>(json, "node"),
                    .local_rank = number<int>(json, "local_rank"),
                    .world_size = number<int>(json, "world_size"),
                    .pid = number<int64_t>(json, "pid"),
                    .host = text(json, "host"),
                    .joined = number<bool>(json, "joined"),
                    .unreachable = number<bool>(json, "unreachable"),
                    .life = named_value(json, "life", Life::kFinished),
                    .exit_code = number<int>(json, "exit_code"),
                    .process = {.state = named_value(json, "process", ProcessState::kGone),
                                .in_kernel = number<bool>(json, "in_kernel"),
                                .waits_in = text(json, "waits_in"),
                                .resident_bytes = number<int64_t>(json, "resident_bytes"),
                                .peak_resident_bytes = number<int64_t>(json, "peak_resident_bytes")},
                    .end = {.known = number<bool>(end, "known"),
                            .out_of_memory = number<bool>(end, "out_of_memory"),
                            .exit_code = number<int>(end, "exit_code"),
                            .signal = number<int>(end, "signal")},
                    .stopped_seconds = number<double>(json, "stopped_seconds"),
                    .gone_seconds = number<double>(json, "gone_seconds"),
                    .phase = named_value(json, "phase", Phase::kEnd),
                    .detail = text(json, "detail"),
                    .phase_seconds = number<double>(json, "phase_seconds"),
                    .step = number<int64_t>(json, "step"),
                    .pace = pace_from(member(json, "pace"))};
  for (const auto& group : list(json, "groups", kMaxGroups)) report.groups.push_back(group_from(group));
  if (!member(json, "last_words").is_null()) report.last_words = words_from(member(json, "last_words"));
  report.facts = text(json, "facts");
  report.stack = text(json, "stack");
  report.post_mortem_dir = text(json, "post_mortem_dir");
  report.read_ns = time_of(json, "read_ns");
  report.realtime_offset_ns = time_of(json, "realtime_offset_ns");
  if (report.rank < 0 || report.rank > kMaxRanks) throw malformed("rank");
  if (report.world_size < 0 || report.world_size > kMaxRanks) throw malformed("world_size");
  return report;
}

}  // namespace lockstep
