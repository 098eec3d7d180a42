// The table of other stacks' flags against the flags that there are.
#include "lockstep/dialect/flag_table.h"

#include <set>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "lockstep/cli/train_flags.h"

namespace lockstep {
namespace {

TEST(FlagTable, WhatItTranslatesToIsAFlagOfTraining) {
  SftFlags flags;
  SftParser parser(flags);
  CLI::App app;
  parser.add_to(app, SftParser::Verb::kSft);
  const std::set<std::string> of_other_verbs = {"result_path", "stream",    "max_batch_size", "merge_lora",
                                                "temperature", "top_p",     "top_k",          "repetition_penalty",
                                                "metric",      "output_dir"};
  for (const auto& name : FlagTable::own().names()) {
    for (const Stack stack : kStacks) {
      const FlagRow* row = FlagTable::own().find(stack, "sft", name);
      if (row == nullptr || (row->effect == FlagEffect::kOwn && !row->harmless.empty())) continue;
      const bool renamed = row->effect == FlagEffect::kAs || row->effect == FlagEffect::kNot;
      if (row->effect != FlagEffect::kOwn && !renamed) continue;
      const std::string target = renamed ? row->target : name;
      if (of_other_verbs.contains(target)) continue;
      EXPECT_NE(app.get_option_no_throw("--" + target), nullptr)
          << stack_name(stack) << ": " << name << " -> " << target;
    }
  }
}

}  // namespace
}  // namespace lockstep
