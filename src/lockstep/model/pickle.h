// What a pickle says, as a table of nodes: names are named and calls are described, nothing is imported, made or called.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Pickle {
 public:
  using Id = uint32_t;
  static constexpr Id kNothing = UINT32_MAX;

  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kLargeInt,  // beyond 64 bits; its value is not kept
    kFloat,     // its value is not kept
    kText,
    kBytes,  // not kept
    kTuple,
    kList,
    kDict,
    kName,        // "module.name", one of those that are expected
    kCall,        // of `called` with the tuple `arguments`; `parts` as a dict's, when items were set
    kPersistent,  // what the pickle's owner keeps elsewhere; `arguments` says what
  };
  struct Node {
    Kind kind = Kind::kNone;
    int64_t number = 0;          // kBool, kInt
    std::string_view text = {};  // kText (bytes of the pickle, of any encoding), kName (the caller's own)
    std::vector<Id> parts = {};  // kTuple, kList: elements; kDict: key, value, key, value, …
    Id called = kNothing, arguments = kNothing;
    Id state = kNothing;  // what __setstate__ would be given
  };

  const Node& operator[](Id id) const { return nodes_[id]; }
  const Node& root() const { return nodes_[root_]; }
  /// For messages: "a tuple", "the name torch.float16", "a call of collections.OrderedDict".
  std::string describe(const Node& node) const;

 private:
  friend class PickleReader;
  std::deque<Node> nodes_;
  Id root_ = kNothing;
};

}  // namespace lockstep
