#include "lockstep/model/pickle.h"

#include <fmt/format.h>

namespace lockstep {

std::string Pickle::describe(const Node& node) const {
  switch (node.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
    case Kind::kLargeInt:
      return "an int";
    case Kind::kFloat:
      return "a float";
    case Kind::kText:
      return "a text";
    case Kind::kBytes:
      return "bytes";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dict";
    case Kind::kName:
      return fmt::format("the name {}", node.text);
    case Kind::kCall:
      return fmt::format("a call of {}", nodes_[node.called].text);
    case Kind::kPersistent:
      return "a storage";
  }
  return "something else";
}

}  // namespace lockstep
