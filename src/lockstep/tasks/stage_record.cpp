#include "lockstep/tasks/stage_record.h"

#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/base/text_format.h"
#include "lockstep/state/checkpoint.h"
#include "lockstep/tasks/run_folder.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

using Flags = std::map<std::string, std::string>;  // "--seed" -> "1"

Flags by_flag(const std::vector<std::string>& args) {
  Flags flags;
  std::string flag;
  for (const auto& word : args) {
    if (word.starts_with("--")) {
      flag = word.substr(0, word.find('='));
      flags[flag] = flag.size() < word.size() ? word.substr(flag.size() + 1) : "";
    } else {
      flags[flag] += (flags[flag].empty() ? "" : " ") + word;
    }
  }
  return flags;
}

/// "--seed 1 is now 2, --nproc 2 is gone".
std::string changes_of(const Flags& before, const Flags& now) {
  std::vector<std::string> changes;
  for (const auto& [flag, value] : before) {
    const auto found = now.find(flag);
    if (found == now.end()) {
      changes.push_back(fmt::format("{} {} is gone", flag, value));
    } else if (found->second != value) {
      changes.push_back(fmt::format("{} {} is now {}", flag, value, found->second));
    }
  }
  for (const auto& [flag, value] : now) {
    if (!before.contains(flag)) changes.push_back(fmt::format("{} {} is new", flag, value));
  }
  return join(changes, ", ");
}

}  // namespace

fs::path StageRecord::folder(size_t stage) const {
  return dir_ / fmt::format("{}-{}", stage + 1, stages_.at(stage).name);
}

void StageRecord::begin(std::vector<StageEntry> wanted, const std::string& resume_from) {
  stages_ = std::move(wanted);
  const std::string resume = resume_word(resume_from);
  const bool asked = !resume.empty() && resume != "false";
  if (asked && resume != "true" && resume != "auto") {
    throw usage_error(fmt::format("--resume_from_checkpoint {}: expected true or auto for a run in stages", resume),
                      "the stage that was interrupted, and its last checkpoint, are found in " + dir_.string());
  }
  const bool there = fs::exists(file());
  if (there && !asked) {
    throw usage_error(fmt::format("{} holds a run in stages already", dir_.string()),
                      "--resume_from_checkpoint auto goes on with it; another --output_dir begins anew");
  }
  if (!there && resume == "true") {
    throw usage_error(fmt::format("--resume_from_checkpoint true: {} holds no run in stages", dir_.string()),
                      "auto begins afresh where there is none");
  }
  if (there) take_over(read());
  resumes_ = there;
  make_folders(dir_);
  write();
}

void StageRecord::take_over(const std::vector<StageEntry>& before) {
  for (size_t i = 0; i < before.size() && before[i].finished; ++i) {
    const std::string stage = fmt::format("stage {} ({}) in {}", i + 1, before[i].name, dir_.string());
    if (i >= stages_.size() || stages_[i].name != before[i].name) {
      throw usage_error(fmt::format("{} is finished, and the file has {} in its place", stage,
                                    i < stages_.size() ? stages_[i].name : "nothing"),
                        "take the stages as they were, or another --output_dir");
    }
    const std::string changes = changes_of(by_flag(before[i].args), by_flag(stages_[i].args));
    if (!changes.empty()) {
      notices_.push_back(
          fmt::format("{} is finished and not run again, although its flags have changed since ({}); "
                      "another --output_dir runs it anew",
                      stage, changes));
    }
    if (!fs::is_directory(dir_ / before[i].checkpoint)) {
      throw checkpoint_error(
          fmt::format("{} has ended at {}, found no such folder", stage, (dir_ / before[i].checkpoint).string()),
          "the next stage starts from it");
    }
    stages_[i] = before[i];
  }
}

void StageRecord::finish(size_t stage, bool by_best) {
  std::vector<DamagedCheckpoint> damaged;
  auto last = latest_whole(folder(stage), damaged);
  if (last && by_best) {
    const std::string best = read_trainer_state(*last).best_model_checkpoint;
    if (!best.empty()) last = best;
  }
  if (!last) {
    throw checkpoint_error(
        fmt::format("{}: expected the last checkpoint of the stage, found none", folder(stage).string()),
        "has something removed it?");
  }
  stages_[stage].finished = true;
  stages_[stage].checkpoint = last->lexically_relative(dir_).string();
  write();
}

std::vector<StageEntry> StageRecord::read() const {
  std::vector<StageEntry> stages;
  const Json json = read_json(file());
  try {
    for (const auto& stage : json.at("stages")) {
      stages.push_back({.name = stage.at("name").get<std::string>(),
                        .args = stage.at("args").get<std::vector<std::string>>(),
                        .finished = stage.at("finished").get<bool>(),
                        .checkpoint = stage.at("checkpoint").get<std::string>()});
    }
  } catch (const Json::exception& error) {
    throw checkpoint_error(fmt::format("{}: {}", file().string(), error.what()), "was it edited by hand?");
  }
  return stages;
}

void StageRecord::write() const {
  Json list = Json::array();
  for (const auto& stage : stages_) {
    list.push_back(
        {{"name", stage.name}, {"args", stage.args}, {"finished", stage.finished}, {"checkpoint", stage.checkpoint}});
  }
  write_json(file(), {{"stages", list}});
}

}  // namespace lockstep
