// Where an agent lets in the agents of the nodes below it, and nobody else: strangers have two seconds to prove that they
// know the job's key, and an address that sends many of them keeps out nobody but itself.
#pragma once

#include <list>
#include <set>
#include <string>
#include <vector>

#include <netinet/in.h>

#include "lockstep/base/clock.h"
#include "lockstep/guard/tree_key.h"

namespace lockstep {

class TreeDoor {
 public:
  static constexpr size_t kMaxStrangers = 64, kMaxOfAddress = 16;

  struct Guest {
    int node;
    FrameStream stream;  // sealed
  };

  /// Listens on a free port of every interface.
  explicit TreeDoor(int node);
  ~TreeDoor();
  TreeDoor(const TreeDoor&) = delete;
  TreeDoor& operator=(const TreeDoor&) = delete;

  int port() const { return port_; }
  /// To wait for.
  std::vector<int> descriptors() const;

  /// Those who have shown just now that they know the key, and are `wanted`. What people should read is added to
  /// `notices`, without a name of the program.
  std::vector<Guest> let_in(const MacKey& key, const Wanted& wanted, std::vector<std::string>& notices);

 private:
  struct Stranger {
    FrameStream stream;
    in6_addr address;
    ParentGreeting greeting;
    Clock::time_point came = Clock::now();
  };
  void answer_knocks(const MacKey& key, const Wanted& wanted);
  void make_room(const in6_addr& address);

  int node_, port_ = 0, listener_;  // opening the listener finds the port
  std::list<Stranger> strangers_;   // the oldest first
  std::set<int> told_;              // nodes whose wrong key was told
};

}  // namespace lockstep
