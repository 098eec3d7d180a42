// Of which model an adapter is: what its folder says.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/session/run_options.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

class Tokenizer;

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

/// How many rows the tables of words have that the adapter holds whole; 0: it holds none. They are the model's then: whoever
/// trained it had given it rows for new tokens (resize_token_embeddings), or had cut those that no token has.
int64_t token_rows_of(const std::filesystem::path& adapter);

/// A sentence where an adapter's folder has a tokenizer with tokens that the model's lacks: its rows were spelled with them. "":
/// there is none.
std::string unknown_tokens(const std::filesystem::path& adapter, const std::filesystem::path& model,
                           const Tokenizer& tokenizer);

/// A sentence where an adapter's folder has another chat template than the model's. "": they are one, or one has none.
std::string other_template(const std::filesystem::path& adapter, const std::filesystem::path& model);

/// Model, dtype and codes of a run, where it does not say them, as its adapters do. Throws UserError(kUsage): nobody says
/// them, or adapters of different bases.
void take_from_adapters(RunOptions& run);

/// As which codes its base was kept while it was trained: what args.json says of it.
QuantOptions quant_of_adapter(const std::filesystem::path& adapter);

}  // namespace lockstep
