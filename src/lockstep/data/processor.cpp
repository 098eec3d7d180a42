#include "lockstep/data/processor.h"

namespace lockstep {

bool is_text_alone(const Sample& sample) {
  return sample.messages.size() == 1 && sample.messages.back().role == "assistant";
}

std::string expected_response(const Sample& sample) {
  if (is_text_alone(sample)) return "";
  const bool answered = !sample.messages.empty() && sample.messages.back().role == "assistant";
  return answered ? sample.messages.back().content : "";
}

}  // namespace lockstep
