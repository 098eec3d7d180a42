// The words of a command line of another stack as Lockstep's own, with what was understood: nothing is dropped in silence.
//
//   words ─▸ given_words ─▸ recognise_stack ─▸ flag_table, translate_rules ─▸ Lockstep's words, notices
//
// Example:
//   const Translation t = translate("sft", {"--model_name_or_path", "m", "--cutoff_len", "512", "--bf16", "True"}, has);
//   t.words     // --model m --max_length 512 --torch_dtype bfloat16 …
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lockstep/dialect/stack.h"

namespace lockstep {

/// A flag as it was given, and what became of it.
struct Understood {
  std::string given;    // "--cutoff_len 512"; empty: a default of the stack
  std::string meaning;  // "--max_length 512"; empty: it makes no difference
  std::string why;      // in words; empty: it is said by the meaning

  std::string text() const;
};

struct Translation {
  Stack stack = Stack::kSwift;
  std::vector<std::string> words;
  std::vector<Understood> understood;          // but for flags that are Lockstep's own, given once
  std::map<std::string, std::string> renamed;  // own flag, with dashes: as it was given
  std::set<std::string> unsaid;  // own flags, with dashes: what the stack or the checkpoint says where nobody does

  /// One for each that was understood; the defaults of a stack together.
  std::vector<std::string> notices() const;
};

/// `has`: whether the verb has a flag of that name. Words that no stack has stay as they are. Throws UserError(kUsage):
/// values that cannot be read, what is not built, and what contradicts each other.
Translation translate(const std::string& verb, const std::vector<std::string>& args,
                      const std::function<bool(const std::string&)>& has);

/// What a verb is to do with these words: LLaMA-Factory's `train` answers and measures ("eval") where do_predict or do_eval is
/// said, and do_train is not.
std::string verb_meant(const std::string& verb, const std::vector<std::string>& args);

}  // namespace lockstep
