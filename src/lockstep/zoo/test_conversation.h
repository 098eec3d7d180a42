// What tests of processors share: those of recorded checkpoints, rows as a person would write them, what of one is learnt.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/zoo/registry.h"

namespace lockstep::test {

inline std::filesystem::path checkpoint(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_FIXTURES) / "oracle" / name / "checkpoint";
}

inline std::unique_ptr<Processor> processor_of(const std::string& name) {
  return family_of(HfConfig::load(checkpoint(name))).processor(checkpoint(name));
}

inline Sample conversation(std::vector<Message> messages, std::vector<std::string> images = {}) {
  Sample sample;
  sample.messages = std::move(messages);
  sample.images = std::move(images);
  sample.where = "train.jsonl:17";
  return sample;
}

inline std::string text_of_labels(const Processor& processor, const Features& features) {
  std::vector<int32_t> ids;
  for (const int32_t label : features.labels) {
    if (label != -100) ids.push_back(label);
  }
  return processor.tokenizer().decode(ids);
}

inline std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const UserError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace lockstep::test
