// lockstep sft stages.yaml: one file, one command; each stage is a launch of its own, so that stages may differ in
// everything that flags can say.
#include "lockstep/tasks/stages.h"

#include <iostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/train_flags.h"
#include "lockstep/cli/verb_job.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/tasks/run_folder.h"

namespace lockstep {
namespace {

void refuse_other_launchers(const StagedFile& file, const Env& env) {
  const World world = World::from_env(env);
  if (world.source == "single process") return;
  throw usage_error(fmt::format("{}: a run in stages starts its ranks itself, a stage at a time, and {} has started {}",
                                file.file, world.source, world.size),
                    "run it alone, with --nproc N on one node; or run the stages one by one");
}

Words words_of(const Words& args, const std::string& model, const std::string& output_dir, bool resume) {
  Words words = args;
  words.insert(words.end(), {"--model", model, "--output_dir", output_dir, "--add_version", "false"});
  if (resume) words.insert(words.end(), {"--resume_from_checkpoint", "auto"});
  return words;
}

/// The stages with their flags read; empty when --help was printed.
std::vector<Stage> read_stages(const StagedFile& file, const Env& env) {
  std::vector<Stage> stages;
  for (size_t i = 0; i < file.stages.size(); ++i) {
    const StageWords& stage = file.stages[i];
    try {
      const auto flags = parse_sft_flags(words_of(stage.args, file.model, "checked-only", /*resume=*/false));
      if (!flags) return {};
      stages.push_back({.name = stage.name, .args = stage.args, .options = flags->options(env)});
    } catch (Error& error) {
      error.add_frame(fmt::format("checking stage {} ({}) of {}", i + 1, stage.name, file.file));
      throw;
    }
  }
  return stages;
}

}  // namespace

int run_staged_sft(const StagedFile& file, const Words& args, const Host& host) {
  refuse_other_launchers(file, host.env);
  if (file.model.empty()) throw usage_error(file.file + ": model is required", "model: DIR at the top of the file");
  const std::vector<Stage> stages = read_stages(file, host.env);
  if (stages.empty()) return 0;
  const std::string next = resume_command(args, "auto");
  const auto run_stage = [&](const StageStart& start) {
    std::map<std::string, std::string> variables = host.env.all();
    variables["LOCKSTEP_RESUME_COMMAND"] = next;
    const Words words = words_of(stages[start.stage].args, start.model, start.output_dir.string(), start.resumes);
    std::cout.flush();
    return launch(launch_request("sft", words, host), stages[start.stage].options.run, Env(std::move(variables)));
  };
  const StagesDone done = run_stages({.source = file.file,
                                      .model = file.model,
                                      .output_dir = file.output_dir,
                                      .resume = file.resume_from_checkpoint,
                                      .stages = stages,
                                      .next_command = next,
                                      .run = run_stage,
                                      .say = [](const std::string& text) { std::cout << text << std::endl; }});
  if (!done.why.empty()) std::cerr << done.why << "\n";
  return done.code;
}

}  // namespace lockstep
