// What is known of a model folder without its weights: config, family, blocks.
#pragma once

#include <filesystem>
#include <memory>
#include <set>

#include "lockstep/data/processor.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/model.h"
#include "lockstep/state/side_files.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {

struct ModelFolder {
  /// `without`: components that are not built; `audio_output`: nor is what speaks, where it is false. Throws
  /// UserError(kCheckpoint, kUsage).
  explicit ModelFolder(const ModelPlace& place, const std::set<Component>& without = {}, bool audio_output = true);

  std::filesystem::path path;
  HfConfig config;
  const Family& family;
  Model model;
  Dtype dtype_of_config() const;  // of the text's, where the root has none, or else of the stored tensors
  bool sees() const;              // a tower is built
  /// Refuses rows that need what is not built. Throws UserError(kCheckpoint): without a chat template, where it is used.
  std::unique_ptr<Processor> processor(bool use_chat_template = true) const;
  /// What a checkpoint of it has beside the weights; `whole`: they hold what is borrowed of another folder as well.
  SideFiles side_files(bool whole) const;
  /// What an adapter of it has beside its tensors: the tokenizer and chat template where it was given tokens, as its base has
  /// another; nothing that makes a folder a model.
  SideFiles adapter_side_files() const;
};

}  // namespace lockstep
