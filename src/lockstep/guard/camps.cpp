#include "lockstep/guard/camps.h"

#include <algorithm>
#include <map>

namespace lockstep {

std::vector<Track> tracks_of(const Census& census, const std::string& group) {
  std::vector<Track> tracks;
  for (const auto& one : census.classes) {
    for (const auto& report : one.sample.groups) {
      if (report.name == group && !report.tail.empty()) tracks.push_back({&one, &report});
    }
  }
  return tracks;
}

uint64_t first_divergence(const std::vector<Track>& tracks) {
  std::map<uint64_t, uint64_t> history;  // of the first track that has the number
  uint64_t found = 0;
  for (const auto& track : tracks) {
    for (const auto& record : track.group->tail) {
      const auto [at, is_new] = history.emplace(record.seq, record.history);
      if (is_new || at->second == record.history) continue;
      if (found == 0 || record.seq < found) found = record.seq;
      break;
    }
  }
  return found;
}

uint64_t first_other_line(const std::vector<Track>& tracks) {
  std::map<uint64_t, const FlightRecord*> calls;  // of the first track that has the number
  uint64_t found = 0;
  for (const auto& track : tracks) {
    for (const auto& record : track.group->tail) {
      const Op op = record.signature.op;
      if (op != Op::kAllReduce && op != Op::kAllGather && op != Op::kReduceScatter && op != Op::kAllToAll) continue;
      const auto [at, is_new] = calls.emplace(record.seq, &record);
      if (is_new || same_line(*at->second, record) || !same_call(*at->second, record)) continue;
      if (found == 0 || record.seq < found) found = record.seq;
      break;
    }
  }
  return found;
}

std::set<std::string> groups_of(const Census& census) {
  std::set<std::string> groups;
  for (const auto& one : census.classes) {
    for (const auto& group : one.sample.groups) groups.insert(group.name);
  }
  return groups;
}

std::vector<Camp> camps_at(const std::vector<Track>& tracks, uint64_t seq, Alike alike) {
  std::vector<Camp> camps;
  for (const auto& track : tracks) {
    const FlightRecord* call = track.group->find(seq);
    if (call == nullptr) continue;
    const auto same = std::find_if(camps.begin(), camps.end(), [&](const Camp& camp) {
      return alike(*camp.call, *call) && camp.call->history == call->history;
    });
    if (same != camps.end()) {
      same->ranks.add(track.ranks->ranks);
      if (track.group->tail.size() > same->track.group->tail.size()) same->track = track;
    } else {
      camps.push_back({track.ranks->ranks, track, call});
    }
  }
  const auto goes_on = [seq, alike](const Camp& camp) { return as_ever(*camp.track.group, seq, alike) ? 1 : 0; };
  std::stable_sort(camps.begin(), camps.end(), [&](const Camp& a, const Camp& b) {
    return a.ranks.size() != b.ranks.size() ? a.ranks.size() > b.ranks.size() : goes_on(a) > goes_on(b);
  });
  return camps;
}

}  // namespace lockstep
