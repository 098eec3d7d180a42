#include <filesystem>
#include <iostream>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/tasks/output_place.h"
#include "lockstep/zoo/fresh_checkpoint.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {

const char* const init_summary =
    "write a complete checkpoint with random weights: config, weights, tokenizer, processor";

int run_init(const Words& args, const Host& /*host*/) {
  InitOptions options;
  std::string dtype = "bfloat16";
  std::vector<std::string> names;
  for (const auto& family : families()) names.push_back(family.name);

  CLI::App app(init_summary, "lockstep init");
  app.footer(
      "Example:\n  lockstep init --family llava --size demo --output_dir my-model --corpus train.jsonl\n"
      "  lockstep inspect my-model");
  app.add_option("--family", options.family, "one of: " + join(names, " "))->required()->group("Model");
  app.add_option("--size", options.size, "tiny (tests) | small (benchmarks) | demo (learns the shapes)")
      ->capture_default_str()
      ->group("Model");
  app.add_option("--torch_dtype", dtype, "dtype of the weights: bfloat16 | float16 | float32")
      ->capture_default_str()
      ->group("Model");
  app.add_option("--seed", options.seed, "the same seed gives the same bytes on every machine")
      ->check(seed_number())
      ->capture_default_str()
      ->group("Model");
  app.add_option("--corpus", options.corpus, "text, .jsonl or .json that the tokenizer learns from (default: built in)")
      ->group("Tokenizer");
  app.add_option("--vocab_size", options.vocab_size, "tokens at most (default: 2048 for small, else 512)")
      ->check(whole_number(1, kMostTokens))
      ->group("Tokenizer");
  app.add_option("--output_dir", options.output_dir, "a new or empty folder")->required()->group("Output");
  if (!parse_flags(app, args)) return 0;

  options.dtype = dtype_from_flag(dtype);
  std::error_code unknown;
  if (!options.corpus.empty() && !std::filesystem::is_regular_file(options.corpus, unknown)) {
    throw data_error(fmt::format("--corpus {}: expected a file of text, found {}", options.corpus,
                                 std::filesystem::exists(options.corpus, unknown) ? "something else" : "no such file"));
  }
  require_folder_place("--output_dir", options.output_dir);
  const InitReport report = init_checkpoint(options);
  std::cout << fmt::format("{}: {} {}, {} parameters, {} as {}, {} tokens (embedding of {} rows), seed {}\n",
                           options.output_dir.string(), options.family, options.size, format_count(report.parameters),
                           format_bytes(report.bytes), torch_dtype_name(options.dtype), report.tokens,
                           report.vocab_size, options.seed);
  if (options.vocab_size > report.tokens) {
    std::cout << fmt::format(
        "notice: the corpus repeats too little for {} tokens; --corpus with more text gives more\n",
        options.vocab_size);
  }
  return 0;
}

}  // namespace lockstep
