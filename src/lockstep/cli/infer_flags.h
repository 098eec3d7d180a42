// The flags of `lockstep infer`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/row_flags.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/tasks/answer_file.h"

namespace lockstep {

struct InferFlags {
  RunFlags run;
  RowFlags rows;
  AnswerFileOptions given;  // what a flag says as it is
  std::string prompt;
  std::vector<std::string> images;
  bool stream = true;
  bool speech = false;
  SpeakChoice voice;  // with --speech

  AnswerFileOptions options(const Env& env) const;  // throws UserError(kUsage)
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<InferFlags> parse_infer_flags(const std::vector<std::string>& args);

}  // namespace lockstep
