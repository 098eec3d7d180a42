// Whose command line it is: the stack whose flags, and whose defaults, were meant.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/dialect/given_words.h"

namespace lockstep {

enum class Stack { kSwift, kTrainer, kLlamaFactory, kLlava, kMiniCpm };
inline constexpr std::array kStacks = {Stack::kSwift, Stack::kTrainer, Stack::kLlamaFactory, Stack::kLlava,
                                       Stack::kMiniCpm};

std::string stack_tag(Stack stack);   // in flag_table.txt: "lf"
std::string stack_name(Stack stack);  // for people: "LLaMA-Factory"

/// By flags that one stack alone has, beside the name of the model, which differs; ms-swift's where nothing speaks.
Stack recognise_stack(const std::vector<GivenFlag>& flags);

/// What a stack does where nothing is said, if it is not what Lockstep does then: flags of Lockstep with their values.
using Defaults = std::vector<std::pair<std::string, std::string>>;
Defaults stack_defaults(Stack stack, const std::string& verb, bool adapts);
/// The same of how answers are generated, where any are.
Defaults answer_defaults(Stack stack);

}  // namespace lockstep
