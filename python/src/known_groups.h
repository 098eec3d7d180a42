// Which of a recorder's groups a call belongs to: those of c10d by their names, each two ranks that send to each other, and one in which
// groups are made. When all groups are destroyed and the ranks meet again, c10d gives the same names anew, to whatever ranks: those are
// groups of another round.
//
// Thread rules: none of its own; whoever calls holds the lock of the recorder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/guard/recorder.h"

namespace lockstep::python {

class KnownGroups {
 public:
  /// `forgets`: what was known of calls in this one of the recorder's groups is of another from here on.
  KnownGroups(Recorder& recorder, std::function<void(int)> forgets)
      : recorder_(recorder), forgets_(std::move(forgets)) {}
  void stand_as(int rank, int world_size) { rank_ = rank, world_size_ = world_size; }

  /// A group by its name: what to call it, and its ranks in their order. One that is not told of is watched when all ranks are in it.
  /// `apart`: it has a backend for each kind of device, and calls of the one are in no order with calls of the other.
  void learn(const std::string& name, const std::string& title, const std::vector<int>& ranks, bool apart);
  /// For so long its own time-out lets a rank wait there.
  void set_patience(const std::string& name, Clock::duration patience);
  /// This rank has destroyed it.
  void leave(const std::string& name);

  /// As c10d has it. `peer`: of send and receive, as the group counts; -1: whoever sends.
  struct CallInGroup {
    const std::string& name;
    int size;
    Op op;
    int peer;
    int64_t tag;
    bool on_gpu;
  };
  struct Found {
    int index = -1;     // of the recorder's groups; -1: it is not watched
    int32_t peer = -1;  // as the job counts
  };
  Found of(const CallInGroup& call);

  /// In its order; empty: nobody has told of it.
  const std::vector<int>& ranks_of(const std::string& name) { return groups_[name].ranks; }

  /// In it a group of these ranks is made. -1: it is not watched.
  int of_making(const RankSet& members);

  int count() const { return count_; }

 private:
  struct Known {
    std::string told;        // how c10d calls it
    std::string title;       // that of no other group of this job
    std::vector<int> ranks;  // of the job, in the group's order; empty: all
    int round = 1;
    bool left = false;
    bool apart = false;                // of its backends
    Clock::duration patience{};        // zero: as everywhere
    bool any_source = false;           // this rank takes what comes: who sends is not known any more
    std::set<int64_t> taken;           // tags under which it does
    std::map<std::string, int> pairs;  // of ranks that send to each other: indices of the recorder's groups
    int index = -1;                    // of the recorder's groups
  };
  Found of_all(Known& known);
  Found of_pair(Known& known, const CallInGroup& call);
  void leave(const Known& known);
  void take_from_anybody(Known& known, int64_t tag);
  std::string pair_title(const Known& known, int64_t tag, int from, int to) const;
  std::string in_round(const std::string& title) const;
  int free_one();
  int add(const std::string& title, const RankSet& members, size_t most);

  Recorder& recorder_;
  std::function<void(int)> forgets_;
  int rank_ = 0, world_size_ = 1;
  std::map<std::string, Known> groups_;  // by their names
  std::map<std::string, int> made_;      // how often a group of a name was made in this round
  std::map<std::string, int> indices_;   // of the recorder's groups, by title and members
  std::vector<int> left_;                // of the recorder's groups, in this order
  int count_ = 0, making_ = -1, round_ = 1;
};

}  // namespace lockstep::python
