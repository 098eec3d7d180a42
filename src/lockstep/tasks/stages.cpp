#include "lockstep/tasks/stages.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/plan/auto_map.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/plan/device_map.h"
#include "lockstep/session/model_folder.h"
#include "lockstep/tasks/stage_record.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

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
void check_placement(const PlacementOptions& wanted, const Model& model) {
  constexpr int kAnyNumber = 1 << 20;
  wanted.check();
  if (wanted.device_map.empty() || is_map_word(wanted.device_map)) return;
  (void)read_device_map(model, wanted.device_map, wanted.virtual_devices > 0 ? wanted.virtual_devices : kAnyNumber);
}

/// A slip in a later stage must show before the first one has trained for hours: what it asks of the model, its files.
/// Reads no weights. Returns a line for people.
std::string check_stage(const FineTuneOptions& options) {
  options.check();
  options.require_dataset();
  const ModelFolder folder(options.run.place(), options.run.without, options.run.audio_output);
  options.components.check_against(folder.model);
  const Dtype compute = options.run.dtype.value_or(folder.dtype_of_config());
  const Plan plan = make_plan(folder.model, options.plan_options(std::max(1, options.run.nproc), compute));
  const Compatibility table = compatibility(folder.model, plan);
  table.require();
  check_placement(options.run.placement, folder.model);
  KeyMap::match(folder.model, open_weights(folder.family, folder.config));
  const DatasetOptions reading = options.rows.dataset();
  const Dataset rows(options.dataset, reading);
  if (!options.val_dataset.empty()) const Dataset evaluated(options.val_dataset, reading);
  (void)options.metric.found();
  return fmt::format("{}; {} rows, learning rate {:g}, {}", trained_of(table), rows.size(), options.train.learning_rate,
                     options.run.zero.name());
}

class StagedRun {
 public:
  explicit StagedRun(const StagesOptions& options) : options_(options), record_(output_dir_of(options)) {}

  StagesDone run() {
    check();
    std::vector<StageEntry> wanted;
    for (const auto& stage : options_.stages) wanted.push_back({.name = stage.name, .args = stage.args});
    record_.begin(std::move(wanted), options_.resume);
    for (const auto& text : record_.notices()) tell("note: " + text);
    std::string model = options_.model;
    for (size_t i = 0; i < options_.stages.size(); ++i) {
      if (!record_.stages()[i].finished) {
        if (const int code = train(i, model); code != 0) return {.code = code, .model = "", .why = why_};
      } else {
        say(i, "is finished");
      }
      model = (record_.folder(i).parent_path() / record_.stages()[i].checkpoint).string();
    }
    tell(fmt::format("all {} stages are finished -> {}", options_.stages.size(), model));
    return {.code = 0, .model = model, .why = ""};
  }

 private:
  static fs::path output_dir_of(const StagesOptions& options) {
    if (!options.output_dir.empty()) return options.output_dir.lexically_normal();
    const fs::path model = fs::path(options.model).lexically_normal();
    return fs::path("output") / (model.filename().empty() ? model.parent_path() : model).filename();
  }

  void tell(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  void say(size_t stage, const std::string& text) const {
    tell(fmt::format("stage {} of {} ({}) {}", stage + 1, options_.stages.size(), options_.stages[stage].name, text));
  }

  void check() const {
    for (size_t i = 0; i < options_.stages.size(); ++i) {
      const Stage& stage = options_.stages[i];
      try {
        if (stage.options.save_strategy == "no" && i + 1 < options_.stages.size()) {
          throw usage_error("--save_strategy no: the next stage starts from this one's last checkpoint",
                            "leave it out, or give steps or epoch");
        }
        if (stage.options.tuner.adapts() && i + 1 < options_.stages.size()) {
          throw usage_error(
              fmt::format("--tuner_type {}: the next stage starts from whole weights, and this one leaves adapters",
                          stage.options.tuner.type),
              "let it be the last; or run it alone, merge it (lockstep export --adapters DIR --merge_lora true), and "
              "go on "
              "from the merged folder");
        }
        FineTuneOptions first = stage.options;
        first.run.model = options_.model;
        say(i, check_stage(first));
      } catch (Error& error) {
        error.add_frame(fmt::format("checking stage {} ({}) of {}", i + 1, stage.name, options_.source));
        throw;
      }
    }
  }

  /// Runs the stage and records its end; the exit code that ends the whole, or 0 to go on.
  int train(size_t stage, const std::string& model) {
    say(stage, fmt::format("starts from {} -> {}", model, record_.folder(stage).string()));
    const Launched done = options_.run(
        {.stage = stage, .model = model, .output_dir = record_.folder(stage), .resumes = record_.resumes()});
    constexpr int kInterrupted = static_cast<int>(ExitCode::kInterrupted);
    if (done.code == kInterrupted) return done.code;  // it has said how to go on
    if (done.code != 0) {
      why_ =
          fmt::format("stage {} of {} ({}) ended with exit code {}; what is finished is kept, and this goes on: {}",
                      stage + 1, options_.stages.size(), options_.stages[stage].name, done.code, options_.next_command);
      return done.code;
    }
    record_.finish(stage, options_.stages[stage].options.load_best_model_at_end);
    if (!done.interrupted || stage + 1 == options_.stages.size()) return 0;
    say(stage, "was finished when the signal came; next: " + options_.next_command);
    return kInterrupted;
  }

  const StagesOptions& options_;
  StageRecord record_;
  std::string why_;
};

}  // namespace

StagesDone run_stages(const StagesOptions& options) {
  if (options.model.empty())
    throw usage_error(options.source + ": model is required", "model: DIR at the top of the file");
  return StagedRun(options).run();
}

}  // namespace lockstep
