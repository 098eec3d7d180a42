// Words of adapter_config.json that choose just what an adapter has, under the names that its files are written with: peft, and
// a run that goes on, know the modules by these words alone.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lockstep/plan/lora_config.h"

namespace lockstep {

struct WordedModule {
  std::string name;
  int64_t rank = 0;
  double alpha = 0;
};

/// target_modules and its like become the shortest of: `asked`, an expression, all names of `chosen`. `all`: of every module
/// that peft sees.
void settle_targets(LoraConfig& config, const ModuleNames& asked, const std::set<std::string>& chosen,
                    const std::vector<std::string>& all);
/// rank_pattern and alpha_pattern, where they say something else of these.
void settle_patterns(LoraConfig& config, const std::vector<WordedModule>& modules);
/// modules_to_save, where it names others than those of the tensors `saved`, or not all. `all`: tensors of the model.
void settle_saved(LoraConfig& config, const std::set<std::string>& saved, const std::vector<std::string>& all);

}  // namespace lockstep
