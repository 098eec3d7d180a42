// What trackers of experiments are told of a run; plain data.
#pragma once

#include <map>
#include <string>

namespace lockstep {

struct LoggerOptions {
  std::string name;                             // of the run; empty: that of its folder
  std::string project = "huggingface";          // as the Hugging Face Trainer calls it
  std::map<std::string, std::string> settings;  // of one tracker: swanlab_mode
};

/// Whether it is one of those that the program carries what feeds them: wandb, swanlab, mlflow.
bool is_tracker(const std::string& name);

}  // namespace lockstep
