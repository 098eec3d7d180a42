#include "lockstep/watch/console_sink.h"

#include <limits>
#include <sstream>

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include "lockstep/base/env.h"

namespace lockstep {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

std::string shown(ConsoleOptions options, const std::vector<Event>& events) {
  std::ostringstream out;
  ConsoleSink sink(out, std::move(options));
  for (const Event& event : events) sink.on(event);
  return out.str();
}

StepDone example_step() {
  return {.step = 30,
          .max_steps = 300,
          .loss = 1.23456,
          .grad_norm = 0.8125,
          .learning_rate = 1e-4,
          .token_accuracy = 0.512,
          .tokens_per_second = 12345,
          .seconds_per_step = 0.4123,
          .remaining_seconds = 123,
          .peak_bytes = {kGib + kGib / 5, kGib + kGib / 4},
          .predicted_bytes = {kGib, kGib}};
}

TEST(ConsoleSink, ShowsAStepOnOneLineInAPipe) {
  EXPECT_EQ(shown({}, {example_step()}),
            "step  30/300  10%  loss 1.2346  grad_norm 0.812  lr 1.00e-04  token_acc 51.2%  12.3K tok/s"
            "  mem 1.20/1.25 GiB (plan 1.00/1.00)  left 2m 3s  0.412 s/it\n");
}

TEST(ConsoleSink, AddsABarOnATerminalThatIsWideEnough) {
  const std::string wide = shown({.tty = true, .width = 200}, {example_step()});
  EXPECT_TRUE(wide.starts_with("step  30/300  10% [#.........]  loss")) << wide;
  const std::string narrow = shown({.tty = true, .width = 80}, {example_step()});
  EXPECT_TRUE(narrow.starts_with("step  30/300  10%  loss")) << narrow;
}

TEST(ConsoleSink, GivesTheExtremesOfManyRanksAndLeavesOutWhatWasNotMeasured) {
  StepDone step = example_step();
  step.token_accuracy = -1;
  step.predicted_bytes.clear();
  step.peak_bytes = {kGib, 2 * kGib, kGib, 3 * kGib, kGib};
  EXPECT_EQ(shown({}, {step}),
            "step  30/300  10%  loss 1.2346  grad_norm 0.812  lr 1.00e-04  12.3K tok/s"
            "  mem 1.00-3.00 GiB  left 2m 3s  0.412 s/it\n");
}

TEST(ConsoleSink, ShowsNoNumberWhereEveryStepWasLeftOut) {
  StepDone step = example_step();
  step.loss = step.grad_norm = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(shown({}, {step}).starts_with("step  30/300  10%  loss -  grad_norm -  lr 1.00e-04"))
      << shown({}, {step});
}

TEST(ConsoleSink, NamesTheRatesOfComponents) {
  StepDone step = example_step();
  step.component_rates = {{"vision", 1e-5}, {"projector", 2e-4}};
  EXPECT_TRUE(shown({}, {step})
                  .starts_with("step  30/300  10%  loss 1.2346  grad_norm 0.812  lr 1.00e-04"
                               " vision 1.00e-05 projector 2.00e-04  token_acc"))
      << shown({}, {step});
}

TEST(ConsoleSink, UpdatesProgressInPlaceOnATerminal) {
  double time = 0;
  const ConsoleOptions options{.tty = true, .width = 24, .now = [&] { return time += 1; }};
  EXPECT_EQ(shown(options, {Progress{"load", 1, 4}, Notice{"hm"}, Progress{"load", 2, 4}, Progress{"load", 4, 4}}),
            "\r\x1b[Kload   25%  1/4 [##...."
            "\r\x1b[Knote: hm\n"
            "\r\x1b[Kload   50%  2/4 [#####."
            "\r\x1b[Kload  100%  4/4  2.0s\n");
}

TEST(ConsoleSink, WritesProgressSparselyAndWithoutControlCharactersInAPipe) {
  double time = 100;
  std::vector<Event> events;
  for (int64_t i = 0; i <= 1000; ++i) events.emplace_back(Progress{"eval", i, 1000});
  const ConsoleOptions options{.now = [&] { return time += 1.0 / 64; }};
  EXPECT_EQ(shown(options, events),
            "eval   12%  128/1000\neval   25%  256/1000\neval   38%  384/1000\neval   51%  512/1000\n"
            "eval   64%  640/1000\neval   76%  768/1000\neval   89%  896/1000\neval  100%  1000/1000  16s\n");
}

TEST(ConsoleSink, ShowsTheStartEvaluationsCheckpointsAndTheEnd) {
  EXPECT_EQ(shown({}, {RunStarted{.verb = "sft",
                                  .output_dir = "out",
                                  .model_family = "llava",
                                  .world_size = 2,
                                  .start_step = 5,
                                  .max_steps = 300,
                                  .num_params = 2'100'000,
                                  .num_trainable_params = 50'000},
                       EvalDone{.step = 10,
                                .num_samples = 64,
                                .loss = 0.5,
                                .token_accuracy = 0.9,
                                .exact_match = 0.75,
                                .seconds = 2,
                                .groups = {{"colour", 1.0}, {"count", 0.5}},
                                .metrics = {{"anls", 0.8125}}},
                       CheckpointSaved{.step = 10, .bytes = 1 << 20, .path = "out/checkpoint-10", .seconds = 0.25},
                       RunEnded{.outcome = "done",
                                .seconds = 100,
                                .train_loss = 0.25,
                                .step = 300,
                                .last_checkpoint = "out/checkpoint-300",
                                .next_command = "lockstep infer"}}),
            "sft llava  2.1M params (50.0K trained)  2 ranks  resumes after step 5  300 steps  -> out\n"
            "eval at step 10: loss 0.5000  token_acc 90.0%  exact 75.0%  anls 0.8125  (64 rows in 2.0s)\n"
            "  colour 100.0%  count 50.0%\n"
            "saved out/checkpoint-10  (1.00 MiB in 250ms)\n"
            "done  after 1m 40s, 300 steps, train_loss 0.2500\n"
            "last checkpoint: out/checkpoint-300\n"
            "next: lockstep infer\n");
}

TEST(ConsoleSink, QuietKeepsNoticesEvaluationsAndTheEnd) {
  const std::vector<Event> events{
      RunStarted{},      example_step(),
      CheckpointSaved{}, Progress{"load", 1, 1},
      Notice{"n"},       RunEnded{.outcome = "interrupted", .exit_code = 130, .seconds = 20, .step = 7}};
  EXPECT_EQ(shown({.quiet = true}, events), "note: n\ninterrupted (exit code 130)  after 20s, 7 steps\n");
}

TEST(ConsoleSink, ColoursOnlyWhenAskedAndDefusesControlCharacters) {
  EXPECT_EQ(shown({.tty = true, .color = true}, {Notice{"a\x1b[2Jb"}}), "\x1b[33mnote: a [2Jb\x1b[0m\n");
  EXPECT_EQ(shown({.tty = true}, {Notice{"a\tb"}}), "note: a b\n");
  EXPECT_EQ(shown({.tty = true}, {Notice{"a\xc2\x9b"
                                         "2Jb \xc2\xa0"}}),
            "note: a 2Jb \xc2\xa0\n");
}

TEST(ConsoleOptions, TakesAPipeForAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto options = console_options(Env(std::map<std::string, std::string>{{"TERM", "xterm"}}), ends[1], true);
  EXPECT_FALSE(options.tty);
  EXPECT_FALSE(options.color);
  EXPECT_TRUE(options.quiet);
  close(ends[0]);
  close(ends[1]);
}

TEST(ConsoleOptions, ATerminalThatKnowsNoEscapesGetsNone) {
  int master = -1, terminal = -1;
  ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const auto options_of = [&](const char* term) {
    return console_options(Env(std::map<std::string, std::string>{{"TERM", term}}), terminal, false);
  };
  EXPECT_TRUE(options_of("xterm").tty);
  EXPECT_TRUE(options_of("xterm").color);
  EXPECT_FALSE(options_of("dumb").tty);
  EXPECT_FALSE(options_of("dumb").color);
  close(master);
  close(terminal);
}

}  // namespace
}  // namespace lockstep
