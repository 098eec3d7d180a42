// Where the ranks of a job first meet: who has come, who is missing, who was started for another job, and which of them share a
// machine.
//
// Example:
//   Meeting meeting(world, *rendezvous, std::chrono::minutes(5), recorder);
//   const World placed = meeting.arrive();   // its node is that of the machine, however ranks are dealt to machines
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/comm/world.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {

/// Of what rank or node `number` says under `word`.
std::string meeting_key(std::string_view word, int number);

/// What ranks of one machine have in common and others have not: the host's name and its start.
std::string own_place();

/// How the ranks of other machines are to reach this one.
struct Reach {
  std::string address;                       // empty: not by one that MASTER_ADDR chooses
  std::string interface, interface_address;  // another way, for a person to choose
};
Reach own_reach(const World& world);

class Meeting {
 public:
  Meeting(const World& world, Rendezvous& rendezvous, Clock::duration patience, Recorder& recorder,
          std::string place = own_place(), const Reach& reach = {});

  /// Tells that this rank is here, but where another job meets, which does not learn of it, and waits for the others, so that a missing one is named and not just a key. Those that were
  /// started for another job, or as this rank, are named at once, on both sides: none of them would ever be enough. Returns
  /// the world with the nodes as the ranks came, numbered by their lowest rank, where the launcher has not said them. Throws
  /// CollectiveError; also where the local ranks of a machine are not counted from 0, and where ranks of several machines
  /// meet of which one would tell the others an address that leads them to themselves.
  World arrive();

  /// Until every rank has set `word`/rank.
  void wait_for_all(std::string_view word, const std::function<void(int, const std::string&)>& look);

 private:
  struct Arrival {
    int size = 0;  // of how many ranks it is one; 0: nothing that can be read
    std::string host = "another host", place;
    int local_rank = 0;
    Reach reach;
  };
  static Arrival read(const std::string& text);

  void join_round();
  void require_own_job();
  std::string waits_for(int rank) const;
  std::optional<std::string> wait_for(const std::string& key, const Deadline& deadline);
  void compare(int rank, const Arrival& arrival);
  void require_to_be_the_one();
  void require_reachable(const std::vector<Arrival>& ranks);
  World placed(const std::vector<Arrival>& ranks);
  [[noreturn]] void tell(const std::string& text);
  CollectiveError quarrel(const std::string& text) const;
  CollectiveError absent(const std::string& text) const;
  [[noreturn]] void refuse(const std::vector<std::string>& missing);
  [[noreturn]] void leave(const CollectiveError& why);

  const World& world_;
  Rendezvous& rendezvous_;
  Clock::duration patience_;
  Recorder& recorder_;
  std::string place_, own_;
};

}  // namespace lockstep
