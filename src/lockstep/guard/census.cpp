#include "lockstep/guard/census.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/guard/splits.h"

namespace lockstep {
namespace {

constexpr size_t kMaxClasses = 4096;
constexpr size_t kManyClasses = 64;     // from here on ranks need not stand quite alike to be told as one
constexpr size_t kManyCalls = 1 << 13;  // calls that a message may hold of each group, all classes together

bool alike(const GroupReport& a, const GroupReport& b) {
  return a.name == b.name && a.entered == b.entered && a.history == b.history && a.path == b.path &&
         a.nan_calls == b.nan_calls && a.waiting_seq == b.waiting_seq && a.left == b.left;
}

bool alike(const std::optional<LastWordsReport>& a, const std::optional<LastWordsReport>& b) {
  return a.has_value() == b.has_value() && (!a || (a->message == b->message && a->exit_code == b->exit_code));
}

/// Whether both hold a signal up, or neither.
bool held_alike(const RankReport& a, const RankReport& b) {
  return (a.aborting_seconds > 0) == (b.aborting_seconds > 0) && (a.asked_seconds > 0) == (b.asked_seconds > 0);
}

/// How much each gives to whom is its own.
bool splits_alike(const RankReport& a, const RankReport& b) {
  static const std::string kBegins = fmt::format(R"({{"label":"{})", kSplits);
  const auto of = [](const RankReport& report) {
    std::vector<std::string_view> found;
    for (const std::string& text : report.structures) {
      if (text.starts_with(kBegins)) found.push_back(text);
    }
    return found;
  };
  return of(a) == of(b);
}

/// Whether the two ranks can be told as one. Details of the place may differ: the first one's is shown.
bool alike(const RankReport& a, const RankReport& b) {
  return a.joined == b.joined && a.unreachable == b.unreachable && a.life == b.life && a.exit_code == b.exit_code &&
         a.process.state == b.process.state && a.process.in_kernel == b.process.in_kernel &&
         a.end.known == b.end.known && a.end.signal == b.end.signal && a.end.exit_code == b.end.exit_code &&
         held_alike(a, b) && splits_alike(a, b) && a.phase == b.phase && a.step == b.step && a.facts == b.facts &&
         alike(a.last_words, b.last_words) && a.no_room == b.no_room && a.groups.size() == b.groups.size() &&
         std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(),
                    [](const GroupReport& one, const GroupReport& other) { return alike(one, other); });
}

void merge(RankClass& into, const RankClass& from) {
  RankReport& sample = into.sample;
  const RankReport& other = from.sample;
  sample.stopped_seconds = std::max(sample.stopped_seconds, other.stopped_seconds);
  sample.gone_seconds = std::max(sample.gone_seconds, other.gone_seconds);
  sample.aborting_seconds = std::max(sample.aborting_seconds, other.aborting_seconds);
  sample.asked_seconds = std::max(sample.asked_seconds, other.asked_seconds);
  if (sample.last_words && other.last_words) {  // the first of them, by one clock
    const int64_t apart = other.realtime_offset_ns - sample.realtime_offset_ns;
    if (other.last_words->at_ns + apart < sample.last_words->at_ns) {
      sample.last_words = other.last_words;
      sample.last_words->at_ns += apart;
    }
  }
  sample.phase_seconds = std::max(sample.phase_seconds, other.phase_seconds);
  for (size_t i = 0; i < sample.groups.size(); ++i) {
    GroupReport& group = sample.groups[i];
    const GroupReport& same = other.groups[i];
    group.waiting_seconds = std::max(group.waiting_seconds, same.waiting_seconds);
    group.last_waiting_seconds = std::min(group.last_waiting_seconds, same.last_waiting_seconds);
    group.stands = group.stands && same.stands;
  }
  into.ranks.add(from.ranks);
}

/// What still tells ends from each other, and who waits from who does not.
bool roughly_alike(const RankReport& a, const RankReport& b) {
  return held_alike(a, b) && a.joined == b.joined && a.unreachable == b.unreachable && a.life == b.life &&
         a.process.state == b.process.state && a.end.known == b.end.known && a.end.signal == b.end.signal &&
         a.last_words.has_value() == b.last_words.has_value() && (a.waiting() == nullptr) == (b.waiting() == nullptr) &&
         a.facts == b.facts && a.no_room == b.no_room && a.groups.size() == b.groups.size() &&
         std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(),
                    [](const GroupReport& one, const GroupReport& other) { return alike(one, other); });
}

void add_class(std::vector<RankClass>& classes, RankClass one) {
  auto same = std::find_if(classes.begin(), classes.end(),
                           [&](const RankClass& known) { return alike(known.sample, one.sample); });
  if (same == classes.end() && classes.size() >= kManyClasses) {
    same = std::find_if(classes.begin(), classes.end(),
                        [&](const RankClass& known) { return roughly_alike(known.sample, one.sample); });
  }
  if (same == classes.end()) {
    classes.push_back(std::move(one));
  } else if (one.ranks.first() < same->ranks.first()) {
    std::swap(*same, one);
    merge(*same, one);
  } else {
    merge(*same, one);
  }
}

}  // namespace

void Census::add(RankReport report) {
  RankSet alone;
  alone.add(report.rank);
  add_class(classes, {std::move(alone), std::move(report)});
}

void Census::add(Census other) {
  for (auto& one : other.classes) add_class(classes, std::move(one));
}

RankSet Census::all() const {
  RankSet ranks;
  for (const auto& one : classes) ranks.add(one.ranks);
  return ranks;
}

const RankClass* Census::of(int rank) const {
  for (const auto& one : classes) {
    if (one.ranks.contains(rank)) return &one;
  }
  return nullptr;
}

Json to_json(const Census& census) {
  Json classes = Json::array();
  for (const auto& one : census.classes) {
    RankReport sample = one.sample;
    for (auto& group : sample.groups) {
      const size_t most = std::max<size_t>(4, kManyCalls / census.classes.size());
      if (group.tail.size() > most)
        group.tail.erase(group.tail.begin(), group.tail.end() - static_cast<std::ptrdiff_t>(most));
    }
    classes.push_back({{"ranks", one.ranks.ranges()}, {"sample", to_json(sample, Calls::kPacked)}});
  }
  return classes;
}

Census census_from_json(const Json& json) {
  const auto malformed = [] { return Error(ExitCode::kCommunication, "a census of ranks is malformed"); };
  if (!json.is_array() || json.size() > kMaxClasses) throw malformed();
  Census census;
  for (const auto& entry : json) {
    if (!entry.is_object() || !entry.contains("ranks") || !entry.contains("sample")) throw malformed();
    auto ranks = ranks_from_json(entry["ranks"]);
    if (!ranks || ranks->empty()) throw malformed();
    census.classes.push_back({std::move(*ranks), report_from_json(entry["sample"])});
  }
  return census;
}

}  // namespace lockstep
