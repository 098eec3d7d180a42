#include "lockstep/dialect/given_words.h"

#include <algorithm>
#include <cctype>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

/// "--name" or "--name=value"; "--" and what is no name are values, as "-1" is.
bool begins_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2])) != 0;
}

}  // namespace

std::string GivenFlag::text() const {
  const std::string bare = spelled.starts_with("--") ? spelled.substr(2) : spelled;
  const bool said_no = (bare.starts_with("no_") || bare.starts_with("no-")) && !name.starts_with("no_");
  if (said_no) return spelled;  // which says the value
  return values.empty() ? spelled : spelled + " " + join(values, " ");
}

GivenWords given_words(const std::vector<std::string>& args) {
  GivenWords out;
  for (const auto& word : args) {
    if (!begins_flag(word)) {
      (out.flags.empty() ? out.before : out.flags.back().values).push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    GivenFlag flag{.name = word.substr(2, equals == std::string::npos ? equals : equals - 2),
                   .spelled = word.substr(0, equals),
                   .values = {}};
    std::ranges::replace(flag.name, '-', '_');
    if (equals != std::string::npos) flag.values.push_back(word.substr(equals + 1));
    out.flags.push_back(std::move(flag));
  }
  return out;
}

bool is_given(const std::vector<std::string>& args, const std::string& name) {
  return std::ranges::any_of(given_words(args).flags, [&](const GivenFlag& flag) { return flag.name == name; });
}

}  // namespace lockstep
