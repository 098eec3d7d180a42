// The flags of `lockstep sft`, under ms-swift's names and with its defaults.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/cli/row_flags.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/cli/tuner_flags.h"
#include "lockstep/tasks/fine_tune_options.h"

namespace lockstep {

struct SftFlags {
  FineTuneOptions given;  // what a flag says as it is
  RunFlags run;
  RowFlags rows;
  TunerFlags tuner;
  std::string reduce_dtype, lr_scheduler_type = "cosine", lr_scheduler_kwargs;
  std::optional<double> learning_rate;
  std::vector<std::string> notices;  // what a person should know about the flags

  /// All of it. Throws UserError(kUsage).
  FineTuneOptions options(const Env& env) const;
};

/// Reads SftFlags from an app, which must live no longer than this.
class SftParser {
 public:
  enum class Verb { kSft, kPlan };  // what the run folder holds does not matter to a plan
  explicit SftParser(SftFlags& flags) : flags_(flags) {}
  void add_to(CLI::App& app, Verb verb);
  void check(CLI::App& app);  // when it has parsed them. Throws UserError(kUsage)

 private:
  SftFlags& flags_;
};

/// nullopt when --help was printed. `pretrains`: with the defaults of `lockstep pt`, for whole texts. Throws UserError(kUsage).
std::optional<SftFlags> parse_sft_flags(const std::vector<std::string>& args, bool pretrains = false);

}  // namespace lockstep
