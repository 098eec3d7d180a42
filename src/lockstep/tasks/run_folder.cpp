#include "lockstep/tasks/run_folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <optional>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file_lock.h"
#include "lockstep/state/checkpoint.h"
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/state/checkpoint_names.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr std::array kLinks = {"last", "best"};

/// N of "vN-<time>"; -1 for any other name.
int version_of(const fs::path& path) {
  const std::string name = path.filename().string();
  int version = -1;
  if (!name.starts_with("v") || name.find('-') == std::string::npos) return -1;
  const auto parsed = std::from_chars(name.data() + 1, name.data() + name.size(), version);
  return parsed.ec == std::errc{} && *parsed.ptr == '-' ? version : -1;
}

/// Run folders under `base`, newest first, then `base` itself.
std::vector<fs::path> run_folders(const fs::path& base) {
  std::vector<std::pair<int, fs::path>> versions;
  if (fs::is_directory(base)) {
    for (const auto& entry : fs::directory_iterator(base)) {
      if (entry.is_directory() && version_of(entry.path()) >= 0)
        versions.emplace_back(version_of(entry.path()), entry.path());
    }
  }
  std::sort(versions.rbegin(), versions.rend());
  std::vector<fs::path> folders;
  folders.reserve(versions.size() + 1);
  for (const auto& [version, path] : versions) folders.push_back(path);
  folders.push_back(base);
  return folders;
}

/// What a killed save has finished is a checkpoint like others; what another run is saving is left to it, and so is what
/// another person may alone look into: a run that needs it will say so.
void name_finished(const fs::path& folder) {
  try {
    if (unnamed_checkpoints(folder).empty()) return;
    const FileLock lock(folder / ".lock");
    if (lock.held()) name_checkpoints(folder);
  } catch (const fs::filesystem_error&) {
    return;
  }
}

std::optional<fs::path> newest_checkpoint(const fs::path& base, std::vector<DamagedCheckpoint>& damaged) {
  for (const auto& folder : run_folders(base)) {
    if (const auto found = latest_whole(folder, damaged)) return found;
  }
  return std::nullopt;
}

/// Who wrote it; "" where that cannot be read.
std::string launch_of(const fs::path& checkpoint) {
  try {
    return read_trainer_state(checkpoint).launch_id;
  } catch (const std::exception&) {
    return "";
  }
}

/// The newest whole checkpoint of ranks that were started before these, by the same launcher.
bool go_on_with_launch(const std::string& id, const std::vector<fs::path>& folders, RunFolder& run) {
  if (id.empty()) return false;
  for (const auto& folder : folders) {
    std::error_code unreadable;
    const fs::directory_iterator looked(folder, unreadable);
    if (unreadable) continue;  // another person's
    for (const auto& [step, path] : checkpoints_in(folder)) {
      if (launch_of(path) != id) continue;
      try {
        verify_folder(path);
      } catch (const UserError& error) {
        run.damaged.push_back(path);
        run.notices.push_back("skipped a damaged checkpoint: " + error.message());
        continue;
      }
      run.checkpoint = path;
      run.dir = folder;
      return true;
    }
  }
  return false;
}

/// Of work that stands there, and perhaps lacks one file that can be brought back.
[[noreturn]] void refuse_damaged(const RunFolderRequest& request, const fs::path& base,
                                 const std::vector<DamagedCheckpoint>& damaged) {
  constexpr size_t kTold = 4;
  std::string why;
  for (size_t i = 0; i < std::min(kTold, damaged.size()); ++i) why += (i > 0 ? "; " : "") + damaged[i].why;
  if (damaged.size() > kTold) why += fmt::format("; and {} more", damaged.size() - kTold);
  throw checkpoint_error(
      fmt::format("--resume_from_checkpoint {}: {} holds {} checkpoint{}, none of them whole: {}",
                  request.resume_from_checkpoint, base.string(), damaged.size(), damaged.size() == 1 ? "" : "s", why),
      "bring back what is missing or was changed; auto with --overwrite_output_dir true begins anew without them, "
      "another --output_dir beside them");
}

fs::path fresh_folder(const fs::path& base, bool add_version) {
  if (!add_version) return base;
  const int newest = version_of(run_folders(base).front());  // -1 when there is none
  std::tm now{};
  const std::time_t seconds = std::time(nullptr);
  ::localtime_r(&seconds, &now);
  return base / fmt::format("v{}-{:%Y%m%d-%H%M%S}", newest + 1, now);
}

bool is_same_folder(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

/// Where a run goes on: beside its checkpoint, unless another place was asked for.
fs::path folder_of(const fs::path& checkpoint, const RunFolderRequest& request, const fs::path& base) {
  const fs::path own = checkpoint.parent_path();
  const bool stays = request.output_dir.empty() || is_same_folder(own, base) ||
                     (version_of(own) >= 0 && is_same_folder(own / "..", base));
  return stays ? own : fresh_folder(base, request.add_version);
}

/// A run that begins in a folder of an older one would mix its checkpoints with those, and be mistaken for it.
void begin_alone(RunFolder& run, bool overwrite) {
  for (auto& [step, path] : checkpoints_in(run.dir)) run.overwritten.push_back(std::move(path));
  if (run.overwritten.empty() || overwrite) return;
  throw usage_error(fmt::format("--output_dir {} holds {} of an earlier run", run.dir.string(),
                                run.overwritten.front().filename().string()),
                    "--resume_from_checkpoint true goes on with it, --overwrite_output_dir true begins anew without "
                    "it; or name another folder");
}

fs::path without_slash(const std::string& text) {
  const fs::path path = fs::path(text).lexically_normal();
  return path.filename().empty() ? path.parent_path() : path;
}

}  // namespace

std::string resume_word(const std::string& given) {
  if (given == "True") return "true";
  return given == "False" ? "false" : given;
}

RunFolder choose_run_folder(const RunFolderRequest& request) {
  RunFolder out;
  const fs::path model = without_slash(request.model);
  const fs::path base =
      request.output_dir.empty() ? fs::path("output") / model.filename() : without_slash(request.output_dir);
  std::vector<fs::path> folders = run_folders(base);
  const std::string resume = resume_word(request.resume_from_checkpoint);
  const bool is_named = !resume.empty() && resume != "false" && resume != "true" && resume != "auto";
  if (is_named) folders.push_back(fs::absolute(without_slash(resume)).parent_path());
  for (const auto& folder : folders) name_finished(folder);
  if (go_on_with_launch(request.launch_id, folders, out)) return out;
  if (resume.empty() || resume == "false") {
    out.dir = fresh_folder(base, request.add_version);
    begin_alone(out, request.overwrite);
    return out;
  }
  if (is_named) {
    out.checkpoint = without_slash(resume);
    if (fs::is_symlink(out.checkpoint)) out.checkpoint = fs::canonical(out.checkpoint);  // "last", "best"
    name_finished(fs::absolute(out.checkpoint).parent_path());
    if (!checkpoint_step(out.checkpoint) || !fs::is_directory(out.checkpoint)) {
      throw checkpoint_error(fmt::format("--resume_from_checkpoint {}: expected a folder checkpoint-N, found {}",
                                         resume, fs::exists(out.checkpoint) ? "something else" : "nothing"),
                             "true takes the newest whole checkpoint in --output_dir");
    }
    if (!out.checkpoint.has_parent_path()) out.checkpoint = fs::path(".") / out.checkpoint;
    out.dir = folder_of(out.checkpoint, request, base);
    if (!is_same_folder(out.dir, out.checkpoint / "..")) begin_alone(out, request.overwrite);
    return out;
  }
  std::vector<DamagedCheckpoint> damaged;
  if (const auto found = newest_checkpoint(base, damaged)) {
    out.checkpoint = *found;
    out.dir = found->parent_path();
    for (const auto& one : damaged) {
      out.damaged.push_back(one.path);
      out.notices.push_back("skipped a damaged checkpoint: " + one.why);
    }
    return out;
  }
  const bool would_replace = !request.add_version && !request.overwrite;
  if (!damaged.empty() && (resume == "true" || would_replace)) refuse_damaged(request, base, damaged);
  if (resume == "true") {
    throw checkpoint_error(fmt::format("--resume_from_checkpoint true: no whole checkpoint in {}", base.string()),
                           "auto begins afresh where there is none");
  }
  for (const auto& one : damaged) out.notices.push_back("skipped a damaged checkpoint: " + one.why);
  if (fs::exists(base))
    out.notices.push_back(fmt::format("no whole checkpoint in {}: this run begins afresh", base.string()));
  out.dir = fresh_folder(base, request.add_version);
  begin_alone(out, request.overwrite);
  return out;
}

std::string shell_command(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) {
    if (!out.empty()) out += ' ';
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-./=,:#+@%") == std::string::npos;
    if (plain) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

std::string resume_command(const std::vector<std::string>& args, const std::string& checkpoint) {
  std::vector<std::string> words = {"lockstep", "sft"};
  const std::string flag = "--resume_from_checkpoint";
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].starts_with(flag + "=")) continue;
    if (args[i] == flag) {
      ++i;
      continue;
    }
    words.push_back(args[i]);
  }
  words.push_back(flag);
  words.push_back(checkpoint);
  return shell_command(words);
}

void require_place_for_links(const fs::path& dir) {
  for (const char* name : kLinks) {
    std::error_code none;
    const fs::file_status there = fs::symlink_status(dir / name, none);
    if (!fs::exists(there) || fs::is_symlink(there)) continue;
    throw usage_error(fmt::format("--create_checkpoint_symlink: {} is there, and is no link", (dir / name).string()),
                      "name another --output_dir, or move it away");
  }
}

std::vector<std::string> link_checkpoints(const fs::path& dir, const fs::path& last, const fs::path& best) {
  std::vector<std::string> failures;
  for (const auto& [name, checkpoint] : {std::pair(kLinks[0], last), std::pair(kLinks[1], best)}) {
    const fs::path link = dir / name, made = dir / (std::string(name) + ".tmp");
    std::error_code failed;
    if (checkpoint.empty() || !fs::is_directory(checkpoint, failed)) continue;
    fs::remove(made, failed);
    fs::create_directory_symlink(checkpoint.parent_path() == dir ? checkpoint.filename() : fs::absolute(checkpoint),
                                 made, failed);
    if (!failed) fs::rename(made, link, failed);
    if (failed)
      failures.push_back(fmt::format("--create_checkpoint_symlink: {} cannot be made ({}); it would lead to {}",
                                     link.string(), failed.message(), checkpoint.string()));
  }
  return failures;
}

}  // namespace lockstep
