#include "lockstep/data/processor.h"

namespace lockstep {

std::string expected_response(const Sample& sample) {
  const bool answered = !sample.messages.empty() && sample.messages.back().role == "assistant";
  return answered ? sample.messages.back().content : "";
}

}  // namespace lockstep
