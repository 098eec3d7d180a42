// What is fuzzed: each target takes any bytes as one kind of file or message and reads them as a run would. It may
// throw what a user is told (UserError); all else ends the process. Two programs run them: libFuzzer's (tools/fuzz.sh)
// and one that replays the kept cases and changes them at random, in every test run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

struct Target {
  std::string name;  // of its folder of seeds too
  void (*run)(std::string_view bytes);
};

/// Files and messages that are read without LibTorch: libFuzzer runs these.
std::vector<Target> reading_targets();
/// What people bring as commands; libFuzzer runs these too.
std::vector<Target> command_targets();
/// Configs of every family, maps and records of checkpoints: these build models, with all that belongs to it.
std::vector<Target> model_targets();

/// Runs a target once; a throw that no user should see is printed, and ends the process by abort().
void run_one(const Target& target, std::string_view bytes);

/// An empty folder of this process for targets that read folders, made anew.
std::string fresh_folder();

}  // namespace lockstep::fuzz
