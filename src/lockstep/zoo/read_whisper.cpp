#include "lockstep/zoo/read_whisper.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/zoo/config_keys.h"

namespace lockstep {

WhisperConfig read_whisper_config(const HfConfig& part, const WhisperConfig& usual) {
  WhisperConfig tower = usual;
  tower.hidden = part.size("d_model", usual.hidden);
  tower.heads = part.size("encoder_attention_heads", usual.heads);
  tower.mlp = part.size("encoder_ffn_dim", usual.mlp);
  tower.layers = part.size("encoder_layers", usual.layers, {.most = kMaxLayers});
  tower.bins = part.size("num_mel_bins", usual.bins, {.most = 512});
  tower.max_positions = part.size("max_source_positions", usual.max_positions, {.most = 1 << 16});
  tower.activation = read_activation(part, "activation_function", usual.activation);
  if (part.flag("scale_embedding", false)) throw wrong_key(part, "scale_embedding", "false");
  if (tower.hidden % tower.heads != 0)
    throw wrong_key(part, "d_model", fmt::format("a multiple of encoder_attention_heads {}", tower.heads));
  return tower;
}

LogMelConfig read_whisper_mel(const HfConfig& file, const WhisperConfig& tower) {
  LogMelConfig mel = read_log_mel_config(file.json(), file.where());
  mel.frames_first = true;
  if (mel.bins == tower.bins) return mel;
  throw checkpoint_error(fmt::format("{}: feature_size: expected {} (config.json num_mel_bins), found {}", file.where(),
                                     tower.bins, mel.bins));
}

}  // namespace lockstep
