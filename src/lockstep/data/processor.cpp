#include "lockstep/data/processor.h"

namespace lockstep {

std::string expected_response(const Sample& sample) {
  for (auto it = sample.messages.rbegin(); it != sample.messages.rend(); ++it) {
    if (it->role == "assistant") return it->content;
  }
  return {};
}

}  // namespace lockstep
