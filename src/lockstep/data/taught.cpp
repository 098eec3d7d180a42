#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/processor.h"

namespace lockstep {

Taught Taught::from_flag(const std::string& words) {
  Taught out;
  for (const auto& word : split(words, '+')) {
    if (word == "default") continue;
    if (word == "ignore_empty_think") {
      out.empty_thinking = false;
    } else if (word == "last_round" || word == "all") {
      if (out.of != Of::kAnswers) {
        throw usage_error(fmt::format("--loss_scale {}: last_round and all contradict each other", words));
      }
      out.of = word == "all" ? Of::kAll : Of::kLastRound;
    } else {
      throw usage_error(
          fmt::format("--loss_scale: expected default, last_round, all or ignore_empty_think, found \"{}\"", word),
          "tokens are learnt or not; weights of a part of an answer are not built");
    }
  }
  return out;
}

}  // namespace lockstep
