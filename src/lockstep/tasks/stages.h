// Training in stages: each a run of its own that starts from the last checkpoint of the one before.
//
// OUTPUT/stages.json says which stages are finished; OUTPUT/<number>-<name>/ is a stage's run folder. How a stage is
// run is the caller's: as a launch of its own, so that stages may differ in everything, or in this process.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/session/launch.h"
#include "lockstep/tasks/fine_tune_options.h"

namespace lockstep {

struct Stage {
  std::string name;
  std::vector<std::string> args;  // as a person gave them: kept in stages.json and compared when a run goes on
  FineTuneOptions options;        // its model and output folder are chosen here
};

/// What a stage is to be run with.
struct StageStart {
  size_t stage = 0;  // counted from 0
  std::string model;
  std::filesystem::path output_dir;
  bool resumes = false;  // goes on from a checkpoint of its own where there is one
};

struct StagesOptions {
  std::string source;                // of the stages, for messages: a file's name
  std::string model;                 // the first stage starts from it
  std::filesystem::path output_dir;  // empty: output/<name of the model's folder>
  std::string resume;                // true, auto, or nothing
  std::vector<Stage> stages;
  std::string next_command;  // goes on with what is not finished
  std::function<Launched(const StageStart& start)> run;
  std::function<void(const std::string& text)> say;  // for people
};

struct StagesDone {
  int code = 0;       // of the first stage that did not end well, else 0
  std::string model;  // the last checkpoint, when all are finished
  std::string why;    // a stage has ended badly: which, and how to go on
};

/// Checks all stages against the model and the data, then runs them in order. Throws UserError.
StagesDone run_stages(const StagesOptions& options);

}  // namespace lockstep
