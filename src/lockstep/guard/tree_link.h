// An agent among the agents of other nodes: one parent, a few children, so that no node hears more than a handful of
// voices however large the job. Up flow censuses, down flow orders. Only peers with the run's token are heard.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/guard/census.h"
#include "lockstep/guard/frames.h"

namespace lockstep {

/// The shape of the tree.
inline constexpr int kTreeArity = 8;
inline int tree_parent(int node) { return (node - 1) / kTreeArity; }  // of a node > 0
std::vector<int> tree_children(int node, int num_nodes);

/// What was heard besides censuses, as JSON texts.
struct TreeNews {
  std::vector<std::string> from_parent, from_children;
};

class TreeLink {
 public:
  /// Listens on a free port of every interface.
  TreeLink(std::string token, int node, int num_nodes);
  ~TreeLink();
  TreeLink(const TreeLink&) = delete;
  TreeLink& operator=(const TreeLink&) = delete;

  int port() const { return port_; }
  /// Begins to connect; false when the address makes no sense.
  bool connect_parent(const std::string& host, int port, const std::string& token);

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
    bool lost = false, whole = false, left = false;
  };
  struct Stranger {
    FrameStream stream;
    Clock::time_point came = Clock::now();
  };
  void let_in();
  void hear_strangers();
  static void hear_child(Child& child, TreeNews& news);
  void hear_parent(TreeNews& news);

  std::string token_;
  int node_, num_nodes_, listener_ = -1, port_ = 0;
  std::vector<Stranger> strangers_;
  std::map<int, Child> children_;
  std::unique_ptr<FrameStream> parent_;
  Clock::time_point parent_heard_{}, beat_{};
  bool parent_met_ = false, parent_left_ = false;
};

}  // namespace lockstep
