// From a vision tower to the language model: the features that a family selects, projected, then laid among the tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/model/block.h"

namespace lockstep {

struct ProjectorConfig {
  std::vector<std::string> slots;  // of vision features [N,1+P,D], laid side by side
  int64_t vision_hidden = 0, text_hidden = 0;
  std::string activation = "gelu";
  bool bias = true, drop_class_token = true;
  bool single = false;  // one linear layer alone
};

/// Two linear layers with an activation between, or one. Writes media [N,P,D]. Taps "vision_feature_layer" (with the class
/// token) and "projector".
class Projector final : public Block {
 public:
  Projector(std::string name, ProjectorConfig config);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  ProjectorConfig config_;
};

/// Whose features go where.
struct MergeConfig {
  Component component = Component::kProjector;
  Modalities runs_on = kPictures;
  std::string features = "media";  // slot of [.., D], M features in all
  std::string slot = "pixel";      // of the media: pixel_index [M] says where they go
};

/// Reads hidden [B,T,D]; writes hidden with the features in the rows of their placeholders.
class MergeMedia final : public Block {
 public:
  explicit MergeMedia(std::string name, MergeConfig config = {});
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  MergeConfig config_;
};

}  // namespace lockstep
