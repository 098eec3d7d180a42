// The flags of adapters, under ms-swift's names.
#pragma once

#include <string>
#include <vector>

#include "lockstep/tasks/tuner.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

struct TunerFlags {
  TunerOptions given{.type = "lora"};  // as ms-swift has it; what a program does not say is full
  bool type_given = false;
  std::vector<std::string> target_modules{"all-linear"};
  std::string target_regex, lora_dtype, rank_pattern, alpha_pattern;

  /// Throws UserError(kUsage).
  TunerOptions options() const;
};

void add_tuner_flags(CLI::App& app, TunerFlags& flags);

}  // namespace lockstep
