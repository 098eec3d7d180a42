#include "lockstep/text/sentencepiece/clean_up.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Source: transformers, PreTrainedTokenizerBase.clean_up_tokenization: the order counts.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kRules{{{" .", "."},
                                                                                {" ?", "?"},
                                                                                {" !", "!"},
                                                                                {" ,", ","},
                                                                                {" ' ", "'"},
                                                                                {" n't", "n't"},
                                                                                {" 'm", "'m"},
                                                                                {" 's", "'s"},
                                                                                {" 've", "'ve"},
                                                                                {" 're", "'re"}}};

// Bytes at the end that may be the start of `pattern`.
size_t open_bytes(std::string_view text, std::string_view pattern) {
  for (size_t size = std::min(pattern.size() - 1, text.size()); size > 0; --size) {
    if (text.ends_with(pattern.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace

std::string CleanUp::run(std::string text, bool at_end) {
  for (size_t i = 0; i < kRules.size(); ++i) {
    const auto& [pattern, replacement] = kRules.at(i);
    text.insert(0, std::exchange(held_.at(i), {}));
    std::string out;
    size_t done = 0;
    for (size_t at = text.find(pattern); at != std::string::npos; at = text.find(pattern, done)) {
      out.append(text, done, at - done).append(replacement);
      done = at + pattern.size();
    }
    const std::string_view rest = std::string_view(text).substr(done);
    const size_t open = at_end ? 0 : open_bytes(rest, pattern);
    out += rest.substr(0, rest.size() - open);
    held_.at(i) = rest.substr(rest.size() - open);
    text = std::move(out);
  }
  return text;
}

std::string CleanUp::push(std::string_view text) { return run(std::string(text), false); }
std::string CleanUp::finish() { return run({}, true); }

}  // namespace lockstep
