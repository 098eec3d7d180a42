// The public face: what a program includes that embeds, evaluates, answers or fine-tunes by itself. Everything stands in
// namespace lockstep; examples/ shows two whole programs.
//
//   Env             the environment, read once in main
//   RunOptions      the model, its devices and ranks; RowOptions: how rows are read
//   launch_if_asked starts the ranks; start_job: this process is one of them; rank_main: what becomes of an error
//   EventBus        what a task tells while it runs: add an EventSink of your own
//   fine_tune, evaluate, answer_file, embed, Conversation, plan_job, examine, run_stages: the tasks
#pragma once

#include "lockstep/base/env.h"            // IWYU pragma: export
#include "lockstep/base/error.h"          // IWYU pragma: export
#include "lockstep/base/event.h"          // IWYU pragma: export
#include "lockstep/base/process.h"        // IWYU pragma: export
#include "lockstep/base/version.h"        // IWYU pragma: export
#include "lockstep/session/job.h"         // IWYU pragma: export
#include "lockstep/session/launch.h"      // IWYU pragma: export
#include "lockstep/session/rank_main.h"   // IWYU pragma: export
#include "lockstep/session/session.h"     // IWYU pragma: export
#include "lockstep/tasks/answer_file.h"   // IWYU pragma: export
#include "lockstep/tasks/conversation.h"  // IWYU pragma: export
#include "lockstep/tasks/embed.h"         // IWYU pragma: export
#include "lockstep/tasks/evaluate.h"      // IWYU pragma: export
#include "lockstep/tasks/examine.h"       // IWYU pragma: export
#include "lockstep/tasks/fine_tune.h"     // IWYU pragma: export
#include "lockstep/tasks/plan_job.h"      // IWYU pragma: export
#include "lockstep/tasks/stages.h"        // IWYU pragma: export
