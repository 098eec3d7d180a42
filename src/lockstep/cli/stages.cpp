#include "lockstep/cli/stages.h"

#include <iostream>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/media_flags.h"
#include "lockstep/cli/run_folder.h"
#include "lockstep/cli/session.h"
#include "lockstep/cli/stage_record.h"
#include "lockstep/cli/train_flags.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/plan/auto_map.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/plan/device_map.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

void refuse_other_launchers(const StagedFile& file, const Env& env) {
  const World world = World::from_env(env);
  if (world.source == "single process") return;
  throw usage_error(fmt::format("{}: a run in stages starts its ranks itself, a stage at a time, and {} has started {}",
                                file.file, world.source, world.size),
                    "run it alone, with --nproc N on one node; or run the stages one by one");
}

std::vector<std::string> words_of(const std::vector<std::string>& args, const std::string& model,
                                  const fs::path& output_dir, bool resume) {
  std::vector<std::string> words = args;
  words.insert(words.end(), {"--model", model, "--output_dir", output_dir.string(), "--add_version", "false"});
  if (resume) words.insert(words.end(), {"--resume_from_checkpoint", "auto"});
  return words;
}

std::string trained_of(const Compatibility& table) {
  std::map<ComponentRole, std::vector<Component>> by_role;
  for (const auto& row : table.rows) by_role[row.role].push_back(row.component);
  std::string text;
  for (const auto& [role, components] : by_role) {
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", role_name(role), names_of(components));
  }
  return text;
}

/// The names of a map that a person wrote; how many devices there are is known when a stage begins.
void check_placement(const PlacementFlags& flags, const Model& model) {
  constexpr int kAnyNumber = 1 << 20;
  flags.check();
  if (flags.device_map.empty() || is_map_word(flags.device_map)) return;
  (void)read_device_map(model, flags.device_map, flags.virtual_devices > 0 ? flags.virtual_devices : kAnyNumber);
}

/// A slip in a later stage must show before the first one has trained for hours: its flags, what they ask of the model,
/// its files. Reads no weights. Returns a line for people.
std::string check_stage(const SftFlags& given, const Env& env) {
  SftFlags flags = given;
  read_media_environment(env, flags.rows.media);
  const ModelFolder folder(flags.run.model, flags.run.without());
  flags.components.check_against(folder.model);
  const Dtype compute = flags.run.dtype().value_or(folder.dtype_of_config());
  const Plan plan = make_plan(folder.model, flags.plan_options(std::max(1, flags.run.nproc), compute));
  const Compatibility table = compatibility(folder.model, plan);
  table.require();
  check_placement(flags.run.placement, folder.model);
  KeyMap::match(folder.model, Weights::open(flags.run.model));
  const DatasetOptions options = flags.rows.dataset(env);
  const Dataset rows(flags.dataset, options);
  if (!flags.val_dataset.empty()) const Dataset evaluated(flags.val_dataset, options);
  (void)flags.metric.found();
  return fmt::format("{}; {} rows, learning rate {:g}, {}", trained_of(table), rows.size(), flags.train.learning_rate,
                     flags.run.zero().name());
}

class StagedRun {
 public:
  StagedRun(const StagedFile& file, const std::vector<std::string>& words, const Env& env)
      : file_(file), words_(words), env_(env), record_(output_dir_of(file)) {}

  int run() {
    if (!check()) return 0;
    std::vector<StageEntry> wanted;
    for (const auto& stage : file_.stages) wanted.push_back({.name = stage.name, .args = stage.args});
    record_.begin(std::move(wanted), file_.resume_from_checkpoint);
    for (const auto& text : record_.notices()) std::cout << "note: " << text << std::endl;
    std::string model = file_.model;
    for (size_t i = 0; i < file_.stages.size(); ++i) {
      if (!record_.stages()[i].finished) {
        if (const int code = train(i, model); code != 0) return code;
      } else {
        say(i, "is finished");
      }
      model = (record_.folder(i).parent_path() / record_.stages()[i].checkpoint).string();
    }
    std::cout << fmt::format("all {} stages are finished -> {}\n", file_.stages.size(), model);
    return 0;
  }

 private:
  static fs::path output_dir_of(const StagedFile& file) {
    if (!file.output_dir.empty()) return fs::path(file.output_dir).lexically_normal();
    const fs::path model = fs::path(file.model).lexically_normal();
    return fs::path("output") / (model.filename().empty() ? model.parent_path() : model).filename();
  }

  void say(size_t stage, const std::string& text) const {
    std::cout << fmt::format("stage {} of {} ({}) {}", stage + 1, file_.stages.size(), file_.stages[stage].name, text)
              << std::endl;
  }

  /// Parses and checks every stage; false when --help was printed.
  bool check() {
    for (size_t i = 0; i < file_.stages.size(); ++i) {
      const StageWords& stage = file_.stages[i];
      try {
        auto flags = parse_sft_flags(words_of(stage.args, file_.model, "checked-only", /*resume=*/false));
        if (!flags) return false;
        if (flags->save_strategy == "no" && i + 1 < file_.stages.size()) {
          throw usage_error("--save_strategy no: the next stage starts from this one's last checkpoint",
                            "leave it out, or give steps or epoch");
        }
        say(i, check_stage(*flags, env_));
        flags_.push_back(std::move(*flags));
      } catch (Error& error) {
        error.add_frame(fmt::format("checking stage {} ({}) of {}", i + 1, stage.name, file_.file));
        throw;
      }
    }
    return true;
  }

  /// Runs the stage and records its end; the exit code that ends the whole, or 0 to go on.
  int train(size_t stage, const std::string& model) {
    say(stage, fmt::format("starts from {} -> {}", model, record_.folder(stage).string()));
    const std::string next = resume_command(words_, "auto");
    std::map<std::string, std::string> variables = env_.all();
    variables["LOCKSTEP_RESUME_COMMAND"] = next;
    const auto words = words_of(file_.stages[stage].args, model, record_.folder(stage), record_.resumes());
    const Launched done = launch("sft", words, flags_[stage].run, Env(std::move(variables)));
    constexpr int kInterrupted = static_cast<int>(ExitCode::kInterrupted);
    if (done.code == kInterrupted) return done.code;  // it has said how to go on
    if (done.code != 0) {
      std::cerr << fmt::format(
          "stage {} of {} ({}) ended with exit code {}; what is finished is kept, and this goes on: {}\n", stage + 1,
          file_.stages.size(), file_.stages[stage].name, done.code, next);
      return done.code;
    }
    record_.finish(stage);
    if (!done.interrupted || stage + 1 == file_.stages.size()) return 0;
    say(stage, "was finished when the signal came; next: " + next);
    return kInterrupted;
  }

  const StagedFile& file_;
  const std::vector<std::string>& words_;
  const Env& env_;
  StageRecord record_;
  std::vector<SftFlags> flags_;
};

}  // namespace

int run_stages(const StagedFile& file, const std::vector<std::string>& words, const Env& env) {
  refuse_other_launchers(file, env);
  if (file.model.empty()) throw usage_error(file.file + ": model is required", "model: DIR at the top of the file");
  return StagedRun(file, words, env).run();
}

}  // namespace lockstep
