// How a model's matrices are kept: as the folder has them, or as codes that they become while they are loaded.
//
// Example:
//   options.quantised = quantisation_for(folder, run.quant, dtype, &weights, &keys);    // null: nothing is codes
#pragma once

#include <memory>
#include <optional>

#include "lockstep/plan/quantisation.h"
#include "lockstep/session/model_folder.h"
#include "lockstep/session/run_options.h"

namespace lockstep {

class KeyMap;
class Weights;

/// What config.json says of its weights; nullopt: they are plain. Throws UserError(kCheckpoint) naming a method that is
/// not built.
std::optional<QuantOptions> quantised_as(const HfConfig& config);

/// `weights` and `keys` may be null where a model is planned and not read: then config.json tells. Throws UserError(kUsage)
/// where codes are asked for of a folder that holds codes already.
std::shared_ptr<const Quantisation> quantisation_for(const ModelFolder& folder, const QuantOptions& asked,
                                                     Dtype compute, const Weights* weights, const KeyMap* keys);

}  // namespace lockstep
