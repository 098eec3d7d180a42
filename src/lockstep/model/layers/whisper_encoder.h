// Whisper's encoder over clips of any length behind one another: two convolutions over time, positions, layers in which a state
// looks at its own stretch of the clip and at the earlier ones.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

struct WhisperConfig {
  int64_t hidden = 0, mlp = 0, layers = 0, heads = 0, bins = 80, max_positions = 1500;
  int64_t stretch = 0;  // states that see one another and all before them; 0: all of the clip
  double norm_eps = 1e-5;
  std::string activation = "gelu";
  bool learnt_positions = true;  // else sines and cosines, which no file holds
};

/// Reads audio_values [W,bins], frame_windows, state_windows and audio_places; writes audio [V,D]. `name` is the tower's. Taps
/// "audio_conv1" [W,D] and "audio_conv2" [V,D], before their activations.
class WhisperEmbeddings final : public Block {
 public:
  WhisperEmbeddings(const std::string& name, const WhisperConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  WhisperConfig config_;
};

/// Reads audio [V,D] and clip_ends [C,2]; writes audio. Taps "<name>.sound".
class WhisperLayer final : public Block {
 public:
  WhisperLayer(std::string name, const WhisperConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  Tensor attend(const Params& params, const Tensor& x_VD, const Tensor& ends_C2) const;

  WhisperConfig config_;
};

/// The norm behind the last layer. Reads and writes audio [V,D]. Taps "audio_encoder".
class WhisperNorm final : public Block {
 public:
  WhisperNorm(std::string name, const WhisperConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  WhisperConfig config_;
};

/// As WhisperNorm, behind the mean of as many states as pool_windows [M,pool] has. Reads audio [V,D]; writes audio [M,D].
class PooledNorm final : public Block {
 public:
  PooledNorm(std::string name, const WhisperConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  WhisperConfig config_;
};

struct AudioProjectorConfig {
  int64_t audio_hidden = 0, text_hidden = 0;
  std::string activation = "relu";
};

/// Two linear layers with an activation between, then the mean of as many states as pool_windows [M,pool] has. Reads audio;
/// writes sound [M,D]. Taps "audio_projection" and "audio_tokens".
class AudioProjector final : public Block {
 public:
  AudioProjector(std::string name, const AudioProjectorConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  AudioProjectorConfig config_;
};

/// One linear layer. Reads audio [M, audio hidden]; writes sound [M, text hidden]. Taps "audio_features".
class AudioLinear final : public Block {
 public:
  AudioLinear(std::string name, const AudioProjectorConfig& config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;
};

}  // namespace lockstep
