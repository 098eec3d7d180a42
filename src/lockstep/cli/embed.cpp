// lockstep embed: one vector a row, or a token, for any number of multimodal rows on any number of ranks.
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/cli/embed_flags.h"
#include "lockstep/cli/verb_job.h"
#include "lockstep/cli/verbs.h"

namespace lockstep {
namespace {

void print(const Embedded& done, const std::string& output) {
  if (done.was_finished) {
    std::cout << fmt::format("{} holds all of it already; --overwrite true makes it anew\n", output);
    return;
  }
  const EmbeddingCounts& counts = done.counts;
  const auto tokens = static_cast<double>(counts.tokens);
  const std::string pace =
      done.seconds > 0 ? fmt::format(" in {:.1f} s ({:.1f} tokens/s)", done.seconds, tokens / done.seconds) : "";
  std::cout << fmt::format("{} rows, {} tokens{} -> {}\n", counts.rows - counts.failed, counts.tokens, pace,
                           done.file.string());
  if (counts.failed == 0) return;
  std::cout << fmt::format(
      "notice: {} rows could not be used and have an \"error\" (--strict true stops at the first): {}\n", counts.failed,
      counts.first_failure);
}

}  // namespace

const char* const embed_summary = "turn rows of text and pictures into vectors";

int run_embed(const Words& args, const Host& host) {
  const auto flags = parse_embed_flags(args);
  if (!flags) return 0;
  const EmbeddingOptions options = flags->options(host.env);
  if (const auto code = launch_verb("embed", args, options.run, host)) return *code;
  Job job = start_verb("embed", options.run, host);
  const Console console(std::cerr, job, host);
  const Embedded done = embed(job, options, console.events());
  const bool told = tell_result(host, job,
                                {{"output", options.output.string()},
                                 {"file", done.file.string()},
                                 {"was_finished", done.was_finished},
                                 {"rows", done.counts.rows},
                                 {"failed", done.counts.failed},
                                 {"first_failure", done.counts.first_failure},
                                 {"tokens", done.counts.tokens},
                                 {"width", done.counts.width},
                                 {"seconds", done.seconds}});
  if (told) return 0;
  if (job.reports()) print(done, options.output.string());
  if (!done.was_finished) print_communication(job, options.run, std::cerr);
  return 0;
}

}  // namespace lockstep
