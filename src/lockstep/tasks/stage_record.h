// OUTPUT/stages.json: which stages of a staged run are finished, with which flags, and where each has ended.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct StageEntry {
  std::string name;
  std::vector<std::string> args;  // without what belongs to the whole
  bool finished = false;
  std::string checkpoint;  // where it has ended, relative to the output folder
};

class StageRecord {
 public:
  explicit StageRecord(std::filesystem::path output_dir) : dir_(std::move(output_dir)) {}

  /// "1-projector", under the output folder.
  std::filesystem::path folder(size_t stage) const;
  const std::vector<StageEntry>& stages() const { return stages_; }

  /// What is to be run. `resume`: "" or "false", "true", "auto". Throws UserError(kUsage, kCheckpoint) when the folder
  /// holds a staged run that is not to be resumed, or none that could be, when a finished stage has another in its
  /// place, and when its checkpoint is gone.
  void begin(std::vector<StageEntry> wanted, const std::string& resume);
  /// Whether something was there to go on with.
  bool resumes() const { return resumes_; }
  const std::vector<std::string>& notices() const { return notices_; }

  /// Records where the stage has ended: at its last checkpoint, or at the best of its evaluations. Throws UserError(kCheckpoint) when it has left no whole checkpoint.
  void finish(size_t stage, bool by_best);

 private:
  void take_over(const std::vector<StageEntry>& before);
  std::vector<StageEntry> read() const;
  void write() const;
  std::filesystem::path file() const { return dir_ / "stages.json"; }

  std::filesystem::path dir_;
  std::vector<StageEntry> stages_;
  std::vector<std::string> notices_;
  bool resumes_ = false;
};

}  // namespace lockstep
