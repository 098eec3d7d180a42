// What becomes of each flag that users of other stacks bring: flag_table.txt, read once. Its head says what a line means.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/dialect/stack.h"

namespace lockstep {

enum class FlagKind { kTruth, kWhole, kNumber, kLimit, kSteps, kWord, kWords, kJson };
enum class FlagEffect { kOwn, kAs, kNot, kNone, kOnly, kRule };

struct FlagRow {
  FlagKind kind = FlagKind::kWord;
  FlagEffect effect = FlagEffect::kOwn;
  std::string target;                 // of kAs and kNot a flag, of kRule the rule's name
  std::vector<std::string> harmless;  // of kOnly, and of kOwn where a verb has it not; in small letters
  std::string why;
};

class FlagTable {
 public:
  /// The one that the program carries.
  static const FlagTable& own();
  /// Throws Error: a line that is none.
  explicit FlagTable(std::string_view text);

  /// As this stack means it in this verb ("sft", "infer", …); nullptr: it has no such flag.
  const FlagRow* find(Stack stack, std::string_view verb, const std::string& name) const;
  /// The stacks that have it; empty: none.
  std::vector<Stack> stacks_of(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::pair<std::string, std::string>, FlagRow> rows_;  // by stack, or stack.verb, and name
};

}  // namespace lockstep
