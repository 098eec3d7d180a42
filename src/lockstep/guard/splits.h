// How many numbers a rank gives to each other in an all_to_all, and takes from it. Sizes are each rank's own there, so that no signature
// holds them: they are shown beside the call, as structures are, the latest two of a rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/guard/diagnosis.h"

namespace lockstep {

struct Splits {
  static constexpr size_t kMost = 64;  // ranks of a group; of more nothing is shown

  int rank = 0;
  std::string group;
  uint64_t seq = 0;        // of the call there
  std::vector<int> ranks;  // of the job, in the group's order
  std::vector<int64_t> sends, receives;
};

/// What the label of a structure begins with that is one.
inline constexpr const char* kSplits = "splits ";

std::string splits_label(const Splits& splits);
std::string splits_text(const Splits& splits);
/// Nothing: it is none.
std::optional<Splits> splits_from(const std::string& json);

/// One rank sends more or less than another takes from it in the same call.
std::optional<Diagnosis> differing_splits(const Census& census);

}  // namespace lockstep
