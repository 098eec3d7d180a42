// What a call is about, and where in the program it was made: every call carries both.
//
// Example:
//   comm.barrier("start");                     // the place is that of this line
//   comm.all_gather(full, shard, unit.name + " gather");
#pragma once

#include <source_location>
#include <string>
#include <string_view>

namespace lockstep {

/// Made at the call, from any text; refers to it, so it lives as long as the call.
struct Label {
  std::string_view text;
  std::source_location site;

  // NOLINTBEGIN(google-explicit-constructor): it stands for the text in an argument list
  Label(const char* label, std::source_location where = std::source_location::current()) : text(label), site(where) {}
  Label(std::string_view label, std::source_location where = std::source_location::current())
      : text(label), site(where) {}
  Label(const std::string& label, std::source_location where = std::source_location::current())
      : text(label), site(where) {}
  // NOLINTEND(google-explicit-constructor)
};

}  // namespace lockstep
