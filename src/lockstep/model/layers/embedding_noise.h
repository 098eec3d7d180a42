// NEFTune: noise on embeddings while they are trained.
#pragma once

#include "lockstep/model/block.h"

namespace lockstep {

/// hidden [B,T,D] with uniform numbers of up to alpha / sqrt(L D) added to the L tokens of each row, whether rows stand behind one
/// another (B is 1) or have padding behind them. What a row gets follows from its key alone.
Tensor with_noise(const Tensor& hidden_BTD, const EmbeddingNoise& noise);

}  // namespace lockstep
