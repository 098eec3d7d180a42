// An agent among the agents of other nodes: one parent, a few children, so that no node hears more than a handful of
// voices however large the job. Up flow censuses, down flow orders. Only agents that know the job's key are heard.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/socket.h>

#include "lockstep/base/clock.h"
#include "lockstep/guard/census.h"
#include "lockstep/guard/tree_door.h"
#include "lockstep/guard/tree_key.h"

namespace lockstep {

struct SocketAddress {
  sockaddr_storage address{};
  socklen_t length = 0;
};

/// Of the parent, found once: a name may lead to several, of which a firewall lets some through.
struct ParentAddress {
  std::string text;  // host:port
  std::vector<SocketAddress> all = {};
};

/// The shape of the tree.
inline constexpr int kTreeArity = 8;
inline int tree_parent(int node) { return (node - 1) / kTreeArity; }  // of a node > 0
std::vector<int> tree_children(int node, int num_nodes);

/// What was heard besides censuses, as JSON texts, and what people should read.
struct TreeNews {
  std::vector<std::string> from_parent, from_children, notices;
  bool parent_met = false;  // just now
};

class TreeLink {
 public:
  /// Listens on a free port of every interface.
  TreeLink(int node, int num_nodes) : node_(node), num_nodes_(num_nodes), door_(node) {}
  ~TreeLink() = default;
  TreeLink(const TreeLink&) = delete;
  TreeLink& operator=(const TreeLink&) = delete;

  int port() const { return door_.port(); }
  /// The job's, from tree_key(). Nobody is heard before.
  void set_key(const MacKey& key) { key_ = key; }
  bool has_key() const { return key_.has_value(); }
  /// Begins to connect, and begins again until the parent has shown that it knows the key. What is sent up before is
  /// lost. False when the address makes no sense.
  bool connect_parent(const std::string& host, int port);
  bool connect_parent(ParentAddress address);
  /// It is being greeted at this moment.
  bool meeting_parent() const { return parent_ != nullptr && !parent_met_ && parent_->open(); }

  /// Reads, writes, lets in, beats.
  TreeNews pump();
  std::vector<int> descriptors() const;

  void send_up(const Json& message);
  void send_down(const Json& message);
  /// `whole`: it holds all ranks of this subtree as they stood a moment ago.
  void send_census(const Census& census, bool whole);

  /// The latest of each child's subtree; ranks of children that fell silent are marked unreachable.
  Census children_census() const;
  /// Every child that is expected has told a whole census within `age`.
  bool children_fresh(Clock::duration age) const;
  /// Nobody is left below: all said goodbye or fell silent.
  bool children_left() const;
  std::optional<double> parent_silent_seconds() const;  // nothing before it was met, and after its goodbye
  void say_goodbye();

 private:
  struct Child {
    FrameStream stream;
    Clock::time_point heard = Clock::now(), census_at{};
    Census census;
    bool spoke = false, lost = false, whole = false, left = false;
  };
  void hear_strangers(TreeNews& news);
  static void hear_child(int node, Child& child, TreeNews& news);
  void hear_parent(TreeNews& news);
  void greet_parent(TreeNews& news);
  void begin_to_greet();
  void tell_of_parent(Greeted greeted, TreeNews& news);

  int node_, num_nodes_;
  std::optional<MacKey> key_;
  TreeDoor door_;
  std::map<int, Child> children_;

  ParentAddress parent_address_;
  size_t next_address_ = 0;
  std::unique_ptr<FrameStream> parent_;
  std::optional<ChildGreeting> greeting_;
  Clock::time_point parent_heard_{}, looked_for_{}, begun_{}, again_{}, beat_{};
  Clock::duration pause_{};  // between two tries
  bool parent_met_ = false, parent_left_ = false, told_key_ = false, told_silence_ = false;
};

}  // namespace lockstep
