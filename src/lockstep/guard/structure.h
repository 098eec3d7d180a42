// What a rank is about to gather of a nest of values, node by node: where ranks hold other nests, the first difference is
// told before a byte has moved. Each rank shows it as JSON:
//
//   {"label": "labels 3fa1b2c4", "title": "labels", "nodes": [["", "tuple of 2"], ["[0]", "float32 tensor, 2-d"], …],
//    "names": {"[1]": "metadata"}, "fixes": {"[1]": "…"}, "note": "rows are collated by collate at train.py:12"}
//
// The label, which the calls carry as well, changes with the nodes. A path that begins with a letter stands for itself, and
// not for a part of what the title names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct Structure {
  std::string label, title, note;
  std::vector<std::pair<std::string, std::string>> nodes;  // path below the title, and what stands there
  std::map<std::string, std::string> names, fixes;         // by path, of it and all below

  /// Beside what is gathered stands what it was computed from: paths of their own, "batch['labels']".
  bool shows_a_batch() const;
};

/// The label of one that is only a note: where a rank's NaN stands.
inline constexpr const char* kNanRemark = "nan";

/// And of what a rank did otherwise than in the pass before, which its calls do not show. The note says it of the rank.
inline constexpr const char* kModulesRemark = "modules";

/// Nothing: it is none.
std::optional<Structure> structure_from(const std::string& json);

/// The first node that is not alike.
struct NodeDifference {
  std::string path;          // "labels[1][0] (of \"metadata\")"
  std::string mine, theirs;  // "nothing" where there is no such node
  std::string fix;           // empty: nobody has said one
};
std::optional<NodeDifference> first_difference(const Structure& mine, const Structure& theirs);

}  // namespace lockstep
