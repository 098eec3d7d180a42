// The flags of `lockstep infer`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/row_flags.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/tasks/answer_file.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

struct InferFlags {
  RunFlags run;
  RowFlags rows;
  AnswerFileOptions given;  // what a flag says as it is
  std::string prompt;
  std::vector<std::string> images;
  bool stream = true;
  bool speech = false;
  SpeakChoice voice;                 // with --speech
  std::vector<std::string> notices;  // what a person should know about the flags

  AnswerFileOptions options(const Env& env) const;    // throws UserError(kUsage)
  AnswerFileOptions answering(const Env& env) const;  // without the model
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<InferFlags> parse_infer_flags(const std::vector<std::string>& args);

/// Of how rows are answered alone (generation, speech, reading of rows): for a model that is open.
void add_answering_flags(CLI::App& app, InferFlags& flags);

}  // namespace lockstep
