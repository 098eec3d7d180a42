// The names that a device map may use: of blocks, of parameters, and of everything above and inside them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lockstep/model/model.h"

namespace lockstep {

/// A block as one dialect calls it.
struct BlockNames {
  std::string name;
  std::vector<std::string> keys = {},
                           tied = {};  // of its parameters: its own, and those that it reads of another block
  bool has_params() const { return !keys.empty() || !tied.empty(); }
};

class DeviceNames {
 public:
  /// `dialect`: nullptr for the canonical names. `model` is looked at only here.
  DeviceNames(const Model& model, const Dialect* dialect);

  const std::string& family() const { return family_; }
  const std::vector<BlockNames>& blocks() const { return blocks_; }
  std::vector<std::string> known() const { return {known_.begin(), known_.end()}; }

  /// Whether the model has such a name; modules without weights that other libraries name (rotary_emb, act_fn) count
  /// wherever what they would be inside of does.
  bool knows(const std::string& name) const;
  /// Whether all parameters at or under the name are the block's.
  bool belongs_to(const std::string& name, const BlockNames& block) const;

 private:
  void add_known(std::string name);

  std::string family_;
  std::vector<BlockNames> blocks_;
  std::vector<std::string> keys_;  // of all parameters that blocks own
  std::set<std::string> known_;    // with "", the root
};

/// "a.b.c" -> "a.b" -> "a" -> "".
std::string parent_name(const std::string& name);
/// Whether `name` is `ancestor` or stands under it; everything stands under "".
bool is_within(const std::string& name, const std::string& ancestor);

}  // namespace lockstep
