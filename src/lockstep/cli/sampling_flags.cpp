#include "lockstep/cli/sampling_flags.h"

#include <CLI/CLI.hpp>

#include "lockstep/cli/number_bounds.h"

namespace lockstep {

void add_sampling_flags(CLI::App& app, const std::string& group, SamplingOptions& out) {
  app.add_option("--temperature", out.temperature, "0: greedy")
      ->check(real_number({.least = 0}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--top_k", out.top_k, "draw among so many of the likeliest, beside a --temperature; 0: all")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--top_p", out.top_p, "draw among the likeliest that have this share together, beside a --temperature")
      ->check(real_number({.above = 0, .most = 1}))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--min_p", out.min_p,
         "draw among tokens that have at least this part of the likeliest one's, beside a --temperature; 0: all")
      ->check(real_number({.least = 0, .most = 1}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--repetition_penalty", out.repetition_penalty, "1: off")
      ->check(real_number({.above = 0}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--no_repeat_ngram_size", out.no_repeat_ngram_size,
                 "no row of so many tokens stands twice in prompt and answer; 0: off")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--stop_words", out.stop_words, "an answer ends behind the first of these, which stands in it")
      ->check([](const std::string& word) { return std::string(word.empty() ? "expected a word, found none" : ""); })
      ->group(group);
  app.add_option("--skip_special_tokens", out.skip_special_tokens,
                 "leave special tokens out of answers; what ends them never shows")
      ->capture_default_str()
      ->group(group);
}

}  // namespace lockstep
