#include "lockstep/cli/batch_flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/cli/number_bounds.h"

namespace lockstep {

void add_batch_flags(CLI::App& app, const std::string& names, const std::string& help, const std::string& group,
                     BatchSize& batch) {
  const auto read = [](std::string& text) -> std::string {
    if (text == "auto") {
      text = std::to_string(kAutoBatch);
      return {};
    }
    const std::string fault = whole_number_fault(text, 1, kMostRowsAtOnce);
    return fault.empty() ? fault : fault + "; auto is taken too";
  };
  app.add_option("--memory_fraction", batch.memory_fraction, "of the memory that a rank has, for a batch size of auto")
      ->check(real_number({.above = 0, .most = 1}))
      ->capture_default_str()
      ->group(group);
  app.add_option(names, batch.rows, help + "; auto: the largest that fits")
      ->transform(CLI::Validator(read, "N|auto"))
      ->capture_default_str()
      ->group(group);
}

}  // namespace lockstep
