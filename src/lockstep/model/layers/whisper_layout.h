// Where the frames of clips stand that have any length: in one line behind one another, so that a clip's features do not
// depend on its neighbours. What convolutions, positions, attention and pooling of a tower of Whisper's kind read.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

/// Of a block of sound: {frames of the clip, frames that its values hold}. More values than frames: a recorded batch that was
/// filled up to its longest clip.
inline constexpr const char* kAudioFrames = "audio_frames";

/// Of a clip with so many frames: what the second convolution, of stride 2, makes of them.
inline int64_t states_of(int64_t frames) { return (frames - 1) / 2 + 1; }

struct WhisperLayoutConfig {
  int64_t max_positions = 0;  // states that a clip may have, or a chunk of it
  int64_t pool = 1;           // states that become a token
  int64_t chunk = 0;          // frames, even, that convolutions, positions and attention take as a clip; 0: all of it
};

/// Reads audio_frames [C,2]; writes frame_windows [W,3] and state_windows [V,3] i64 (what a convolution of three sees; the row
/// behind the last is silence), audio_places [V] i64, clip_ends [C,2] i64 of the host (behind the last state of a clip, or of a
/// chunk; how many of its states may be looked at), pool_windows [M,pool] i64, which go on over the ends of chunks.
class WhisperLayout final : public Block {
 public:
  WhisperLayout(std::string name, const WhisperLayoutConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  WhisperLayoutConfig config_;
};

}  // namespace lockstep
