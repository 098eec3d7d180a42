// A file of flags as the first word of a command line, as ms-swift takes it: JSON or YAML.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// One entry of "stages": the flags of all stages with its own over them, then the command line's, which wins.
struct StageWords {
  std::string name;
  std::vector<std::string> args;
};

/// A file with "stages". What belongs to the whole is taken out of the flags; "" where it was not given.
struct StagedFile {
  std::string file, model, output_dir, resume_from_checkpoint;
  std::vector<StageWords> stages;
};

/// What stands in the file: its flags as words, then the rest of the command line, which wins; and the variables of its
/// "ENV", for those that are not set.
struct Expanded {
  std::vector<std::string> args;
  std::map<std::string, std::string> variables;
  std::optional<StagedFile> staged;
};

/// `args` without program and verb; returned as they are when the first is no file name, and none stands behind --config. Throws UserError(kUsage): a
/// file that is no map of flags, stages without a name or with the same one, and flags in a stage that belong to the
/// whole.
Expanded expand_config_file(const std::vector<std::string>& args);

}  // namespace lockstep
