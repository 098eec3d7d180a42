// The one table of families. A new family = one file + one line in registry.cpp.
//
// Example:
//   const Family& family = family_of(load_config(dir));
//   Model model = family.build(config);
//   std::unique_ptr<Processor> processor = family.processor(dir);
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/processor.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/model.h"
#include "lockstep/model/weights.h"
#include "lockstep/zoo/hf_inputs.h"

namespace lockstep {

struct Family {
  std::string name;                        // "llava": --family, model_type
  std::vector<std::string> architectures;  // as in config.json, and a model_type that is not the name
  std::function<Model(const HfConfig&)> build;
  std::function<std::unique_ptr<Processor>(const ModelPlace& place)> processor;
  /// What transformers' processor gives, as features: recorded inputs then go the way of rows.
  std::function<std::vector<Features>(const HfConfig&, const HfInputs&)> rows_of_hf;
  /// config.json, preprocessor and chat template of a fresh checkpoint of a size ("tiny", "small", "demo"); empty:
  /// unknown size. A token id of the config may be a token's text: it becomes a special token, and its id is put there.
  std::function<std::vector<std::pair<std::string, Json>>(const std::string& size, int64_t vocab)> fresh_files;
  /// A row of so many tokens with a picture of the usual size, from config.json alone (zoo/typical_row.h); empty: the
  /// family takes text alone.
  std::function<Features(const HfConfig&, int64_t tokens)> typical_row = {};
  /// Of ms-swift's variables of the environment that speak of media, those that it heeds.
  std::vector<std::string> variables = {};
  /// The standard deviation of a fresh matrix, where it is not the text's initializer_range for all of them.
  std::function<double(const HfConfig&, const std::string& key)> fresh_spread = {};
  /// Where other models share its names: what makes a config one of theirs, "" for its own; and what is expected.
  struct Unlike {
    std::function<std::string(const HfConfig&)> of = {};
    std::string expected = {};
  } unlike = {};
  /// Where a part of the model may stand in a folder of its own (the tower of the original LLaVA).
  struct Elsewhere {
    std::string named_by = {};  // the key of config.json that names the folder
    std::string sizes_in = {};  // and the one under which a folder that was saved with the part has its sizes
    /// The config of the model that its place describes, where that is one of the family; throws as `build` does.
    std::function<std::optional<HfConfig>(const HfConfig&)> join = {};
    /// Which tensors are borrowed of which folder; throws as `build` does.
    std::function<std::vector<BorrowedTensors>(const HfConfig&)> tensors = {};
    /// And which stand nowhere, unless the folder has them.
    std::function<std::vector<MadeTensor>(const HfConfig&)> made = {};
    /// Files that a saved folder has beside or in place of the model's own, by name: `whole`, where it holds those tensors.
    std::function<std::vector<std::pair<std::string, std::string>>(const HfConfig&, bool whole)> files = {};
    /// A part that stands in a file of its own as well, in the run's folder, where nothing else is trained.
    struct Alone {
      std::string file = {}, names = {};  // "mm_projector.bin", and how its tensors' names begin
    } alone = {};
  } elsewhere = {};
};

const std::vector<Family>& families();
/// config.json of the place's folder, what the place says of a model whose parts stand apart, and a vocabulary that has rows for
/// its new tokens. Throws UserError(kCheckpoint); kUsage: it says so of another model.
HfConfig load_config(const ModelPlace& place);
/// By architectures, then model_type. Throws UserError(kCheckpoint) with the list of families; so for a config that a family's
/// names belong to and that is another model. kUsage: its place names a tower, and all of the model stands in its folder.
const Family& family_of(const HfConfig& config);
/// Whether the config, which bears one of the family's names, is its own.
bool is_of(const Family& family, const HfConfig& config);
/// The tensors of the config's folder, those that the family borrows of others, and rows for new tokens.
Weights open_weights(const Family& family, const HfConfig& config);
/// By name. Throws UserError(kUsage) with the list and the nearest.
const Family& family_named(const std::string& name);

}  // namespace lockstep
