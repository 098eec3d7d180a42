// Whether the words of a new adapter stand for something: a name that no module has is a slip of the pen, and so is an expression
// that is none. An adapter's own file may say more than a model has, as peft lets it; it is not asked.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/plan/adapters.h"

namespace lockstep {

/// Throws UserError(kUsage) where an expression of --target_regex, --rank_pattern or --alpha_pattern does not compile.
void check_expressions(const LoraConfig& config);
/// Throws UserError(kUsage) where one of --target_modules is no module of the model.
void check_targets(const LoraConfig& config, const std::vector<ModuleOfModel>& all);
/// The same of --exclude_modules; and of patterns and layers where none of the modules that are adapted is meant.
void check_further_words(const LoraConfig& config, const std::vector<ModuleOfModel>& all,
                         const std::vector<AdaptedModule>& adapted);

/// The last parts of the modules' names, each once.
std::vector<std::string> leaves_of(const std::vector<ModuleOfModel>& modules);
/// Of a flag: the nearest of `leaves`, all of them, and a whole name as an example.
UserError matches_nothing(const std::string& flag, const std::string& name, const std::vector<std::string>& leaves,
                          const std::string& example);

}  // namespace lockstep
