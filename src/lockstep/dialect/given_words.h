// A command line as argparse reads it: flags with their values, in the order in which they stand.
//
// Example:
//   given_words({"--learning-rate=1e-4", "--dataset", "a", "b"}).flags   // learning_rate {1e-4}, dataset {a, b}
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct GivenFlag {
  std::string name;     // without dashes at its begin, and with underscores
  std::string spelled;  // as it stands there: "--learning-rate"
  std::vector<std::string> values;

  std::string text() const;  // "--learning-rate 1e-4"
};

struct GivenWords {
  std::vector<std::string> before;  // what stands before the first flag
  std::vector<GivenFlag> flags;
};

GivenWords given_words(const std::vector<std::string>& args);

/// Whether the flag of this name ("loss_scale") stands there, however it is spelled.
bool is_given(const std::vector<std::string>& args, const std::string& name);

}  // namespace lockstep
