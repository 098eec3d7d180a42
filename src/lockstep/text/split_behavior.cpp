#include "lockstep/text/split_behavior.h"

#include <algorithm>

#include "lockstep/text/json_keys.h"

namespace lockstep {
namespace {

struct Part {
  ByteRange range;
  bool is_match = false;
};

std::vector<Part> cover(size_t size, const std::vector<ByteRange>& matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(matches.size() + 1);
  size_t done = 0;
  for (const ByteRange& match : matches) {
    if (done < match.begin) parts.push_back({{done, match.begin}, invert});
    if (match.begin < match.end) parts.push_back({match, !invert});
    done = match.end;
  }
  if (done < size) parts.push_back({{done, size}, invert});
  return parts;
}

// A match joins its neighbour unless that is a match too. `parts` run away from the neighbour that is joined.
std::vector<ByteRange> merge(const std::vector<Part>& parts) {
  std::vector<ByteRange> out;
  bool previous_match = false;
  for (const Part& part : parts) {
    if (part.is_match && !previous_match && !out.empty()) {
      out.back() = {std::min(out.back().begin, part.range.begin), std::max(out.back().end, part.range.end)};
    } else {
      out.push_back(part.range);
    }
    previous_match = part.is_match;
  }
  return out;
}

std::vector<ByteRange> join_equal_neighbours(const std::vector<Part>& parts) {
  std::vector<ByteRange> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && parts[i].is_match == parts[i - 1].is_match) {
      out.back().end = parts[i].range.end;
    } else {
      out.push_back(parts[i].range);
    }
  }
  return out;
}

}  // namespace

SplitBehavior split_behavior(const std::string& name, const std::string& where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw unsupported(where + ": behavior", name, "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

std::vector<ByteRange> split_ranges(size_t size, const std::vector<ByteRange>& matches, SplitBehavior behavior,
                                    bool invert) {
  std::vector<Part> parts = cover(size, matches, invert);
  std::vector<ByteRange> out;
  switch (behavior) {
    case SplitBehavior::kIsolated:
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (behavior == SplitBehavior::kIsolated || !part.is_match) out.push_back(part.range);
      }
      return out;
    case SplitBehavior::kMergedWithPrevious:
      return merge(parts);
    case SplitBehavior::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      out = merge(parts);
      std::reverse(out.begin(), out.end());
      return out;
    case SplitBehavior::kContiguous:
      return join_equal_neighbours(parts);
  }
  return out;
}

}  // namespace lockstep
