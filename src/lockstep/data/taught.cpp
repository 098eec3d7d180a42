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
    } else if (word == "last_round" || word == "last_answer" || word == "all") {
      if (out.of != Of::kAnswers) {
        throw usage_error(fmt::format("--loss_scale {}: last_round, last_answer and all contradict each other", words));
      }
      out.of = word == "all" ? Of::kAll : word == "last_round" ? Of::kLastRound : Of::kLastAnswer;
    } else {
      throw usage_error(
          fmt::format(
              "--loss_scale: expected default, last_round, last_answer, all or ignore_empty_think, found \"{}\"", word),
          "tokens are learnt or not; weights of a part of an answer are not built");
    }
  }
  return out;
}

}  // namespace lockstep
