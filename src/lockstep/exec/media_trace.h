// Which blocks of a pass see nothing but a part's media: towers and projectors, up to where their features are laid among
// the tokens. Of the same media they make the same, so that it can be kept and given in their place.
//
// Found by what blocks read, not by what they are: a block belongs to them when each slot that it reads follows from the
// media alone. A family says nothing about it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/model/block.h"
#include "lockstep/model/flow.h"

namespace lockstep {

/// What blocks that see media alone have made of them, by the step that reads it.
using MediaOutputs = std::map<size_t, Flow>;

/// Of one part of a pass, whose steps it is shown in order.
class MediaTrace {
 public:
  /// `slots`: of the part's inputs those that follow from its media alone; empty: nothing is traced. `given`: what has been
  /// made of the same media before; null: it is kept.
  MediaTrace(const std::vector<std::string>& slots, std::shared_ptr<const MediaOutputs> given);

  /// Before a step: true where it need not run, as what it makes is given. Else what it reads of that is laid into the flow,
  /// or kept.
  bool skips(size_t step, const Block& block, Flow& flow);

  /// What was kept, or given; null where there is nothing to keep.
  std::shared_ptr<const MediaOutputs> outputs() const;

 private:
  bool sees_media_alone(const Block& block, const Flow& flow) const;

  std::set<std::string> inputs_, made_;  // slots that follow from media alone: of the part, and of such blocks
  std::shared_ptr<const MediaOutputs> given_;
  MediaOutputs kept_;
};

}  // namespace lockstep
