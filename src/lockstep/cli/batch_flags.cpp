#include "lockstep/cli/batch_flags.h"

#include <charconv>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace lockstep {

void add_batch_flags(CLI::App& app, const std::string& names, const std::string& help, const std::string& group,
                     BatchSize& batch) {
  const auto read = [](std::string& text) -> std::string {
    if (text == "auto") {
      text = std::to_string(kAutoBatch);
      return {};
    }
    int64_t rows = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), rows);
    if (failure == std::errc() && end == text.data() + text.size() && rows >= 1 && rows <= kMostRowsAtOnce) return {};
    return fmt::format("expected a number from 1 to {} or auto, found \"{}\"", kMostRowsAtOnce, text);
  };
  app.add_option("--memory_fraction", batch.memory_fraction, "of the memory that a rank has, for a batch size of auto")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str()
      ->group(group);
  app.add_option(names, batch.rows, help + "; auto: the largest that fits")
      ->transform(CLI::Validator(read, "N|auto"))
      ->capture_default_str()
      ->group(group);
}

}  // namespace lockstep
