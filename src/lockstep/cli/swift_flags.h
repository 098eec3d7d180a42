// Flags that people's ms-swift scripts carry and that have no use here: accepted with a word on why, or refused by name
// when leaving them out would change what was asked for. Nothing is dropped in silence.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

/// Holds the given values between adding the flags and looking at them.
class SwiftFlags {
 public:
  void add_to(CLI::App& app);
  /// A sentence for each flag that was given and makes no difference. Throws UserError(kUsage) for what is not built.
  std::vector<std::string> judge() const;

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

}  // namespace lockstep
