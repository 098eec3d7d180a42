// Where a run writes: a versioned folder of its own, or that of the checkpoint which it resumes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct RunFolderRequest {
  std::string output_dir, model, resume_from_checkpoint;
  std::string launch_id = {};  // of a launcher; its checkpoints count before what resume_from_checkpoint says
  bool add_version = true;
  bool overwrite = false;  // the checkpoints of another run go when this one begins
};

struct RunFolder {
  std::filesystem::path dir;
  std::filesystem::path checkpoint;                // empty: from the start
  std::vector<std::filesystem::path> overwritten;  // checkpoints of another run
  std::vector<std::filesystem::path> damaged;      // checkpoints that were passed over
  std::vector<std::string> notices;
};

/// What --resume_from_checkpoint says, Python's "True" and "False" as the words that they are.
std::string resume_word(const std::string& given);

/// Decides, creates nothing; a checkpoint that was finished when its save was killed gets its name.
/// `resume_from_checkpoint`: "" or "false": afresh; a folder; "true": the newest whole checkpoint in output_dir or its vN-*
/// folders, and an error when there is none; "auto": the same, or afresh where there are no checkpoints, or none of them
/// whole and none is replaced that was not to be overwritten. Whatever it says, ranks that are started again go on from the newest whole one
/// of their launcher, and from no older run's. A checkpoint from elsewhere than output_dir is gone on with in
/// output_dir. Throws UserError(kCheckpoint), and UserError(kUsage) when a run would begin among the checkpoints of another.
RunFolder choose_run_folder(const RunFolderRequest& request);

/// `words` quoted for a shell where they need it.
std::string shell_command(const std::vector<std::string>& words);

/// The command line that continues from `checkpoint`.
std::string resume_command(const std::vector<std::string>& args, const std::string& checkpoint);

/// Throws UserError(kUsage) where something else has the name of a link that link_checkpoints() makes.
void require_place_for_links(const std::filesystem::path& dir);

/// Links "last" and "best" in a run's folder to its checkpoints; one that there is none of is left out, and a link that stands there is
/// replaced. Those to its own are relative: they hold when it is moved. Returns what could not be made, as on disks without links: the run
/// is over and saved by then.
std::vector<std::string> link_checkpoints(const std::filesystem::path& dir, const std::filesystem::path& last,
                                          const std::filesystem::path& best);

}  // namespace lockstep
