// The verbs of the command line, a file each. They read flags, call a task and print what it returns.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/host.h"
#include "lockstep/tasks/config_file.h"

namespace lockstep {

using Words = std::vector<std::string>;

/// `args`: the command line without program and verb. Each returns the exit code and throws Error.
int run_pt(const Words& args, const Host& host);   // sft on texts as they are
int run_sft(const Words& args, const Host& host);  // 130: interrupted; says whether a checkpoint was saved
int run_eval(const Words& args, const Host& host);
int run_infer(const Words& args, const Host& host);
int run_embed(const Words& args, const Host& host);
int run_init(const Words& args, const Host& host);
int run_export(const Words& args, const Host& host);
int run_migrate(const Words& args, const Host& host);
int run_report(const Words& args, const Host& host);
int run_inspect(const Words& args, const Host& host);
int run_plan(const Words& args, const Host& host);
int run_doctor(const Words& args, const Host& host);
int run_verify(const Words& args, const Host& host);
int run_demo(const Words& args, const Host& host);

/// sft with a file of stages.
int run_staged_sft(const StagedFile& file, const Words& args, const Host& host);
/// The watcher of a node's ranks. Nobody types it: the first rank of a node starts it, and it ends with the last one.
int run_agent(const Words& args, const Host& host);

extern const char* const pt_summary;
extern const char* const sft_summary;
extern const char* const eval_summary;
extern const char* const infer_summary;
extern const char* const embed_summary;
extern const char* const init_summary;
extern const char* const export_summary;
extern const char* const migrate_summary;
extern const char* const report_summary;
extern const char* const inspect_summary;
extern const char* const plan_summary;
extern const char* const doctor_summary;
extern const char* const verify_summary;
extern const char* const demo_summary;

}  // namespace lockstep
