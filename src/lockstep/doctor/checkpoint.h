// A checkpoint folder against its config: each part is opened, and every tensor's name, dtype and shape compared with
// what the family declares. Reads headers only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "lockstep/doctor/check_report.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/weights.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {

/// What could be opened; the rest is empty.
struct CheckpointParts {
  ModelPlace place;
  std::optional<HfConfig> config;
  const Family* family = nullptr;
  std::optional<Model> model;
  std::optional<Weights> weights;

  /// All that a run opens could be opened.
  bool whole() const { return model && weights; }
  int64_t files() const { return weights ? static_cast<int64_t>(weights->files().size()) : 0; }
};

/// Adds its results under "checkpoint": config, files, tensors, tokenizer, processor, chat template. `without`:
/// components that are not built, whose tensors may be missing; `audio_output`: nor is what speaks, where it is false.
CheckpointParts examine_checkpoint(const ModelPlace& place, const std::set<Component>& without, bool audio_output,
                                   CheckReport& report);

/// Pure: tokens of the tokenizer against rows of the embedding.
CheckResult judge_vocabulary(int64_t tokens, int64_t rows);

}  // namespace lockstep
