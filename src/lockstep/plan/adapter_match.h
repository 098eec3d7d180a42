// Which module of a model each tensor of an adapter's files belongs to, whoever wrote it.
//
// Names in files are those of the stack that wrote them: they changed with transformers 4.52 for models that see or hear, and
// whoever trains the text model alone leaves the rest of the name away. All tensors of a file are of one shape of names;
// every one must find its module.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/plan/adapters.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

/// A tensor of an adapter's files.
struct AdapterTensor {
  std::string file;  // its name, for messages
  TensorSpec spec;
};

/// A tensor of an adapter's files that is written again as it is.
struct CarriedTensor {
  std::string name, written;  // in the files, and as it will be written again
  bool operator==(const CarriedTensor&) const = default;
};

struct AdapterMatch {
  AdapterLayout layout;                     // as it will be written again
  LoraConfig config;                        // as the files say it, under their names
  std::map<std::string, StoredPart> where;  // by the key of ParamSource: the tensor of the files
  std::vector<CarriedTensor> idle;          // of modules that nothing is computed with
  std::vector<CarriedTensor> frozen;        // the model's own, which nothing trains: peft's save_embedding_layers
  Dialect naming_of_files;                  // how the files call the model's tensors
  std::string shape;                        // of the names: "in memory", "released", "text only", a dialect's name
};

/// `place`: of the adapter, for messages. Throws UserError(kCheckpoint): a tensor without a module (both names), A without B,
/// shapes or ranks that disagree with the model or the config, a config that says DoRA of files without magnitudes.
AdapterMatch match_adapter(const Model& model, const Dialect& naming, const LoraConfig& config,
                           const std::vector<AdapterTensor>& tensors, const std::string& place);

}  // namespace lockstep
