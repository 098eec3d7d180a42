// A model: a straight list of blocks over named slots, and how its tensors are called on disk.
//
// Slots a family may use: input_ids [B,T] i64, labels [B,T] i64 (-100 ignored, before the shift by one), positions
// [B,T] or [axes,B,T] i64 (absent: 0..T-1), mask [B,1,T,S] bool (absent: causal), pixel_values (all media of the batch
// that share this slot behind one another), pixel_index [M] i64 (flat positions in B*T), facts of the media that a family's processor states
// ("grid_thw" [N,3] i64), row_ends [R] i64 (rows behind one another in a batch of one: each looks at itself alone),
// hidden [B,T,D], media, cos, sin; the head writes loss (f32 scalar, summed * loss_weight), correct (i64 scalar),
// logits, or last_hidden_state [B,T,D] when nothing of these is asked. A talker has slots of its own beside them, all
// beginning with "speech_" (model/layers/talker.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/block.h"
#include "lockstep/model/dialect.h"

namespace lockstep {

/// Sizes that the rest of the system must know without knowing the family.
struct ModelDims {
  int64_t vocab = 0, hidden = 0, layers = 0, kv_heads = 0, head_dim = 0, max_positions = 0;
  bool positions_end = false;  // longer rows have no one result (RopeConfig::grows): nobody may ask for them
};

/// Whether rows of `max_length` tokens (0: not said) go beyond what the model was made for, and still have one result.
inline bool passes_positions(const ModelDims& dims, int64_t max_length) {
  return dims.max_positions > 0 && max_length > dims.max_positions && !dims.positions_end;
}

/// A component that is not built, although the checkpoint has it. See model/leave_out.h.
struct LeftOut {
  Component component = Component::kVision;
  std::string by;  // what left it out: kNoBuild, kNoAudioOutput; empty: it has nothing to read without one of those
  int64_t blocks = 0;
  Modalities runs_on = {};           // of its blocks
  std::vector<ParamSource> tensors;  // they stay in the files, and are carried through on save
};

/// What the config says that the files hold, though no block reads it: a folder without it does not open elsewhere.
struct Promised {
  std::string beginning;  // of the tensors' names in the files
  std::string by;         // "config.json: enable_audio_output true"
  std::string cure;
};

struct Model {
  std::string family;
  ModelDims dims;                   // of the decoder of text
  std::optional<ModelDims> speech;  // of the talker's, where one is built: its vocabulary is codes
  std::vector<std::unique_ptr<Block>> blocks;
  /// The family's own code answers from embeddings, and not from ids: a penalty on repetition does not see the prompt.
  bool answers_from_embeddings = false;
  int64_t input_blocks = 0;  // the first so many make the embeddings that enter the decoder, media merged in
  std::vector<ParamSource>
      unused;  // in the checkpoint, never computed with (a tower's last layers): carried through on save
  std::vector<LeftOut> left_out;
  /// Beginnings of names in the files ("token2wav."): what nobody computes with, saved bit for bit as it came.
  std::vector<std::string> carried;
  std::vector<Promised> promised;  // of these
  std::vector<Dialect> dialects;   // besides the canonical names

  template <typename B, typename... Args>
  void add(Args&&... args) {
    blocks.push_back(std::make_unique<B>(std::forward<Args>(args)...));
  }
};

}  // namespace lockstep
