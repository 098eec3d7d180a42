#include "lockstep/cli/infer.h"

#include <iostream>

#include "lockstep/cli/answer_file.h"
#include "lockstep/cli/chat.h"
#include "lockstep/cli/media_flags.h"

namespace lockstep {

const char* const infer_summary = "chat with a model, or answer a file of prompts";

int run_infer(const std::vector<std::string>& args, const Env& env) {
  auto flags = parse_infer_flags(args);
  if (!flags) return 0;
  read_media_environment(env, flags->rows.media);
  if (const auto code = launch_if_asked("infer", args, flags->run, env)) return *code;
  Job job = start_job("infer", flags->run, env);
  Session session(job, flags->run.model, flags->run, Session::inference(job, flags->run));
  session.load();
  if (!flags->input.empty()) {
    answer_file(session, *flags, env);
  } else if (!flags->prompt.empty()) {
    Chat(session, *flags).ask_once(flags->prompt);
  } else {
    Chat(session, *flags).converse();
  }
  tell_communication(job, flags->run, std::cerr);  // answers alone stand on stdout
  return 0;
}

}  // namespace lockstep
