#include "lockstep/cli/batch_flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/cli/flags.h"
#include "lockstep/cli/number_bounds.h"

namespace lockstep {

void add_batch_flags(CLI::App& app, const std::string& names, const std::string& help, const std::string& group,
                     BatchSize& batch) {
  const auto read = [&batch](const std::string& text) -> std::string {
    const bool fits = text == "auto";
    const std::string fault = fits ? "" : whole_number_fault(text, 1, kMostRowsAtOnce);
    if (!fault.empty()) return fault + "; auto is taken too";
    batch.rows = fits ? kAutoBatch : std::stoll(text);
    return {};
  };
  app.add_option("--memory_fraction", batch.memory_fraction, "of the memory that a rank has, for what is auto")
      ->check(real_number({.above = 0, .most = 1}))
      ->capture_default_str()
      ->group(group);
  const std::string standard = batch.is_auto() ? "auto" : std::to_string(batch.rows);
  add_word_flag(app, names, "N|auto", standard, help + "; auto: the largest that fits", read)->group(group);
}

}  // namespace lockstep
