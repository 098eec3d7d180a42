// lockstep sft: fine-tune a model on one or many ranks.
#include <iostream>
#include <utility>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/stop_signals.h"
#include "lockstep/cli/train_flags.h"
#include "lockstep/cli/verb_job.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/dialect/given_words.h"
#include "lockstep/tasks/fine_tune.h"
#include "lockstep/tasks/run_folder.h"

namespace lockstep {

const char* const sft_summary = "fine-tune a model on your rows";
const char* const pt_summary = "go on with pre-training: sft on whole texts, without a chat template";

namespace {

/// torchrun starts its ranks in sessions of their own: when it is killed they would hold the machine, and nobody would know.
class Torchrun {
 public:
  explicit Torchrun(const World& world) : followed_(world.source == "torchrun"), first_(world.local_rank == 0) {}

  bool is_gone() {
    if (!followed_ || ::getppid() == pid_) return false;
    if (first_ && !std::exchange(told_, true)) {
      std::cerr << "lockstep sft: torchrun, which has started this rank, is gone: stopping after this step, with a "
                   "checkpoint\n";
    }
    return true;
  }

 private:
  pid_t pid_ = ::getppid();
  bool followed_, first_;
  bool told_ = false;
};

int train(const Words& args, const Host& host, bool pretrains) {
  const auto flags = parse_sft_flags(args, pretrains);
  if (!flags) return 0;
  FineTuneOptions options = flags->options(host.env);
  if (const auto code = launch_verb("sft", args, options.run, host)) return *code;
  StopSignals signals("lockstep sft", host.recorder);  // before any other thread
  const World world = World::from_env(host.env);
  if (world.rank == 0) signals.speak();
  Torchrun torchrun(world);
  Job job = start_verb("sft", options.run, host);
  Console console(std::cout, job, host);
  console.outlive_reader();
  console.tell(flags->notices);
  options.stop_wanted = [&] { return signals.wish() || torchrun.is_gone(); };
  options.launch_id = host.env.text("LOCKSTEP_LAUNCH_ID").value_or("");
  // A stage of several is resumed with them: its launcher knows how.
  const auto of_stages = host.env.text("LOCKSTEP_RESUME_COMMAND");
  options.resume_command = [&](const std::string& checkpoint) {
    return of_stages ? *of_stages : resume_command(args, checkpoint);
  };
  const FineTuned done = fine_tune(job, options, console.events());
  tell_result(host, job,
              {{"output_dir", done.dir.string()},
               {"last_checkpoint", done.last_checkpoint},
               {"steps", done.steps},
               {"train_loss", done.train_loss},
               {"seconds", done.seconds},
               {"interrupted", done.interrupted}});
  return static_cast<int>(done.interrupted ? ExitCode::kInterrupted : ExitCode::kOk);
}

}  // namespace

int run_pt(const Words& args, const Host& host) {
  Words words;
  if (!is_given(args, "use_chat_template")) words.insert(words.end(), {"--use_chat_template", "false"});
  if (!is_given(args, "loss_scale")) words.insert(words.end(), {"--loss_scale", "all"});
  words.insert(words.end(), args.begin(), args.end());
  return train(words, host, /*pretrains=*/true);
}

int run_sft(const Words& args, const Host& host) { return train(args, host, /*pretrains=*/false); }

}  // namespace lockstep
