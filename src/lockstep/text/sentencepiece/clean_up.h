// `clean_up_tokenization_spaces`: spaces before marks and shortened words are taken out of a text (" ." becomes "."), one
// rule after another, as text comes in.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace lockstep {

class CleanUp {
 public:
  /// The text that nothing behind it can change.
  std::string push(std::string_view text);
  /// What was held back; then a new text may begin.
  std::string finish();

 private:
  std::string run(std::string text, bool at_end);

  std::array<std::string, 10> held_;  // by rule: the start of what it replaces
};

}  // namespace lockstep
