// What the files of the family qwen2_5_omni share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/log_mel.h"
#include "lockstep/data/processor.h"
#include "lockstep/data/speech.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/layers/text_config.h"
#include "lockstep/model/layers/whisper_encoder.h"
#include "lockstep/model/layers/window_vision.h"
#include "lockstep/zoo/hf_inputs.h"
#include "lockstep/zoo/media_rules.h"
#include "lockstep/zoo/mrope.h"

namespace lockstep::qwen2_5_omni {

/// A decoder of Omni's: text_config of the thinker, or talker_config, which assume another `vocab` and `head_dim` (0:
/// hidden_size / heads). Throws UserError(kCheckpoint) naming the key.
TextConfig read_decoder(const HfConfig& part, int64_t vocab, int64_t head_dim = 0);

/// The tower for sound, which takes a clip in chunks.
struct SoundConfig {
  WhisperConfig tower;
  int64_t chunk = 200;  // frames
  int64_t output = 0;   // numbers of a token
  int64_t pool = 2;     // states that become a token
  int64_t tokens_of(int64_t frames) const { return ((frames - 1) / 2 + 1) / pool; }
};

/// What speaks: talker_config. `text`: of the thinker. Throws UserError(kCheckpoint) naming the key.
struct Talker {
  TextConfig decoder;  // of codes
  SpeechRules rules;   // without speakers, which no config holds
};
Talker read_talker(const HfConfig& config, const TextConfig& text);
/// thinker_config; all of config.json where the folder holds the thinker alone (Qwen2_5OmniThinkerForConditionalGeneration).
HfConfig thinker_of(const HfConfig& config);
/// enable_audio_output, as transformers reads it: what speaks stands in the files.
bool promises_speech(const HfConfig& config);
/// That, where config.json says what speaks.
bool speaks(const HfConfig& config);

/// Where media stand. Throws UserError(kCheckpoint) for one outside the vocabulary: no prompt holds it.
struct MediaTokens {
  int32_t image, video, audio, audio_begin, audio_end;
};

/// What sees, hears and thinks.
struct Thinker {
  TextConfig text;
  WindowVisionConfig vision;
  SoundConfig sound;
  MediaTokens tokens;
  int64_t positions_per_second = 25;
  int64_t positions_of_chunk = 50;  // a video and its sound take turns after so many

  MropeRules mrope() const {
    return {.merge = vision.merge,
            .tokens_per_second = static_cast<double>(positions_per_second),
            .behind_time = true,
            .seconds_first = true};
  }
};
/// Throws UserError(kCheckpoint) naming the key, what is expected and what was found.
Thinker read_thinker(const HfConfig& config);

/// A clip as the tower reads it. Throws UserError(kData) where it has no token.
MediaBlock clip_block(const LogMelMaker& maker, const SoundConfig& sound, const Audio& audio, const std::string& where);
/// Runs of a video's tokens and of its sound's, chunk by chunk of time. `blocks`: the video's and the sound's.
std::vector<MediaRun> woven_runs(const std::vector<MediaBlock>& blocks, const Thinker& thinker);

std::unique_ptr<Processor> load_processor(const ModelPlace& place);
std::vector<Features> rows_of(const HfConfig& config, const HfInputs& inputs);
/// With a picture of 448 x 448 pixels and ten seconds of sound, where there is room.
Features typical_row(const HfConfig& config, int64_t tokens);
std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab);

}  // namespace lockstep::qwen2_5_omni
