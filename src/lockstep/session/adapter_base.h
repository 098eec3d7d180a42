// Of which model an adapter is: what its folder says.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/session/run_options.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

struct AdapterBase {
  ModelPlace place;
  std::optional<Dtype> dtype;  // that it was trained in
};

/// args.json of the folder, as ms-swift and lockstep write it, else base_model_name_or_path of adapter_config.json; a
/// relative path is tried from here and from the adapter's folder. Throws UserError(kUsage) where no base is found, naming
/// what was looked for, and kCheckpoint where the folder holds no adapter.
AdapterBase base_of_adapter(const std::filesystem::path& adapter);
/// What a person says of a base counts; where they name no folder, the rest is as the adapter says. New tokens are always as
/// it says where they name none: it knows them by their ids. Throws as base_of_adapter does.
ModelPlace completed(ModelPlace given, const std::filesystem::path& adapter);

/// Model, dtype and codes of a run, where it does not say them, as its adapters do. Throws UserError(kUsage): nobody says
/// them, or adapters of different bases.
void take_from_adapters(RunOptions& run);

/// As which codes its base was kept while it was trained: what args.json says of it.
QuantOptions quant_of_adapter(const std::filesystem::path& adapter);

}  // namespace lockstep
