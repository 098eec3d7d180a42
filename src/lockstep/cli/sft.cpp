#include "lockstep/cli/sft.h"

#include "lockstep/cli/media_flags.h"
#include "lockstep/cli/sft_run.h"

namespace lockstep {

const char* const sft_summary = "fine-tune a model on your rows";

int run_sft(const std::vector<std::string>& args, const Env& env) {
  auto flags = parse_sft_flags(args);
  if (!flags) return 0;
  read_media_environment(env, flags->rows.media);
  if (const auto code = launch_if_asked("sft", args, flags->run, env)) return *code;
  StopSignals signals;  // before any other thread
  Job job = start_job("sft", flags->run, env);
  SftRun run(job, *flags, args, env, signals);
  return run.run();
}

}  // namespace lockstep
