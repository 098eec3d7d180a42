// Encoders of Whisper's kind, from a folder's files: the tower's sizes and how sound becomes what it reads.
#pragma once

#include "lockstep/data/log_mel.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/layers/whisper_encoder.h"

namespace lockstep {

/// Of audio_config; `usual`: what a key that is left out means. Throws UserError(kCheckpoint) naming the key, what is expected
/// and what was found.
WhisperConfig read_whisper_config(const HfConfig& part, const WhisperConfig& usual);

/// Of preprocessor_config.json, frames first. Throws UserError(kCheckpoint) unless it makes as many bins as the tower reads.
LogMelConfig read_whisper_mel(const HfConfig& file, const WhisperConfig& tower);

}  // namespace lockstep
