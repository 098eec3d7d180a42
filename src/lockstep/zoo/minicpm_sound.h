// What MiniCPM-o hears: Whisper's encoder, a projector that pools, how clips are spelled among the tokens, what was recorded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/log_mel.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/layers/whisper_encoder.h"
#include "lockstep/model/model.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/hf_inputs.h"

namespace lockstep::minicpm {

struct SoundConfig {
  WhisperConfig tower;
  int64_t pool = 2;                                           // states that become a token
  bool spans = true;                                          // chunk_input: a clip's tokens stand in spans of a second
  int64_t frames() const { return 2 * tower.max_positions; }  // that a clip may have
};

/// Of config.json. Throws UserError(kCheckpoint) naming the key, what is expected and what was found.
SoundConfig read_sound(const HfConfig& config);
/// The layout of clips, the tower and the projector: "apm" and "audio_projection_layer", merged into hidden.
void add_sound(Model& model, const HfConfig& config);

/// Clips are `filled` tokens between marks of their own. `parts.tokenizer` must have all of them as tokens.
void add_sound_rules(ChatParts& parts, const SoundConfig& sound, const LogMelConfig& mel, const std::string& filled,
                     const std::string& where);

/// audio_features [A,bins,W], audio_feature_lens [A] and audio_bounds [spans,3] (row, first, end) as blocks of the rows. Clips
/// that were run together count with what they were filled up with, as the model was made; with audio_alone each by itself.
void add_recorded_clips(std::vector<Features>& rows, const HfConfig& config, const HfInputs& inputs);
/// Puts a clip of the usual length behind the first `taken` tokens, where there is room.
void add_typical_clip(Features& row, const HfConfig& config, int64_t taken);

}  // namespace lockstep::minicpm
