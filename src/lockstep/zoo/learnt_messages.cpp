#include "lockstep/zoo/learnt_messages.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

std::vector<bool> learnt_messages(const Sample& sample, Taught::Of of) {
  size_t begin = 0;
  const std::string first = of == Taught::Of::kLastRound ? "user" : of == Taught::Of::kLastAnswer ? "assistant" : "";
  for (size_t i = 0; i < sample.messages.size(); ++i) {
    if (sample.messages[i].role == first) begin = i;
  }
  std::vector<bool> trained;
  for (const auto& message : sample.messages) {
    trained.push_back(message.role == "assistant" && message.trained && trained.size() >= begin);
    if (of != Taught::Of::kAll || message.trained) continue;
    throw data_error(fmt::format("{}: messages[{}]: expected no \"loss\": false beside --loss_scale all, found it",
                                 sample.where, trained.size() - 1));
  }
  if (of == Taught::Of::kAll || std::ranges::find(trained, true) != trained.end()) return trained;
  throw data_error(fmt::format("{}: expected an assistant message to learn from, found none of {} messages",
                               sample.where, sample.messages.size()));
}

}  // namespace lockstep
