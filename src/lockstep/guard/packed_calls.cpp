#include "lockstep/guard/packed_calls.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "lockstep/guard/report.h"

namespace lockstep {
namespace {

/// The numbers of one call; times and the sequence number as the difference from the call before.
enum Column : size_t { kKind, kSeq, kHistory, kStep, kState, kEntered, kDuration, kColumns };
using Row = std::array<uint64_t, kColumns>;

Error malformed() { return Error(ExitCode::kCommunication, "packed calls of a rank are malformed"); }

uint64_t kind_of(const FlightRecord& record) {
  return record.signature.hash() * 3 ^ hash_bytes(record.label.view()) * 5 ^ hash_bytes(record.site.view()) ^
         record.has_nan * 7;
}

/// Seven bits a byte, the small ones first; small negative numbers are short as well.
void append(std::vector<uint8_t>& out, uint64_t value) {
  value = value << 1 ^ (value >> 63 != 0 ? ~uint64_t{0} : 0);
  for (; value > 0x7F; value >>= 7) out.push_back(static_cast<uint8_t>(value | 0x80));
  out.push_back(static_cast<uint8_t>(value));
}

class Numbers {
 public:
  explicit Numbers(const std::vector<uint8_t>& bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}
  bool over() const { return at_ == end_; }
  uint64_t next() {
    uint64_t value = 0;
    for (int shift = 0; at_ != end_ && shift < 64; shift += 7) {
      const uint8_t byte = *at_++;
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte <= 0x7F) return value >> 1 ^ (value % 2 != 0 ? ~uint64_t{0} : 0);
    }
    throw malformed();
  }

 private:
  const uint8_t *at_, *end_;
};

uint64_t bits(int64_t value) { return static_cast<uint64_t>(value); }
int64_t number(uint64_t bits) { return static_cast<int64_t>(bits); }

}  // namespace

Json packed_calls(const std::vector<FlightRecord>& calls) {
  std::vector<uint64_t> kinds;
  Json examples = Json::array();
  std::vector<uint8_t> rows;
  FlightRecord before;
  for (const auto& call : calls) {
    const uint64_t kind = kind_of(call);
    const auto known = std::find(kinds.begin(), kinds.end(), kind);
    const Row row{static_cast<uint64_t>(known - kinds.begin()),
                  call.seq - before.seq,
                  call.history,
                  bits(call.step) - bits(before.step),
                  static_cast<uint64_t>(call.state),
                  bits(call.entered_ns) - bits(before.entered_ns),
                  call.over() ? bits(call.done_ns) - bits(call.entered_ns) : 0};
    if (known == kinds.end()) {
      kinds.push_back(kind);
      examples.push_back(to_json(call));
    }
    for (const uint64_t value : row) append(rows, value);
    before = call;
  }
  return {{"kinds", std::move(examples)}, {"rows", Json::binary(std::move(rows))}};
}

std::vector<FlightRecord> unpacked_calls(const Json& json) {
  if (!json.is_object()) throw malformed();
  const auto kinds = json.find("kinds"), rows = json.find("rows");
  if (kinds == json.end() || rows == json.end() || !kinds->is_array() || !rows->is_binary()) throw malformed();
  constexpr size_t kMost = FlightRing::kSize;
  if (kinds->size() > kMost) throw malformed();
  std::vector<FlightRecord> examples;
  for (const auto& kind : *kinds) examples.push_back(record_from_json(kind));
  std::vector<FlightRecord> calls;
  FlightRecord before;
  for (Numbers numbers(rows->get_binary()); !numbers.over();) {
    Row row;
    for (uint64_t& value : row) value = numbers.next();
    if (row[kKind] >= examples.size() || calls.size() == kMost) throw malformed();
    FlightRecord call = examples[row[kKind]];
    call.seq = before.seq + row[kSeq];
    call.history = row[kHistory];
    call.step = number(bits(before.step) + row[kStep]);
    call.state = std::min(static_cast<CallState>(row[kState]), CallState::kFailed);
    call.entered_ns = bounded(number(bits(before.entered_ns) + row[kEntered]));
    call.done_ns = call.over() ? bounded(number(bits(call.entered_ns) + row[kDuration])) : 0;
    calls.push_back(call);
    before = call;
  }
  return calls;
}

}  // namespace lockstep
