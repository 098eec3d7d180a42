// What an adapter's folder holds, and whether its base has a module for each of its tensors.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/base/json.h"

namespace lockstep {

/// Keys: folder, kind (LoRA | DoRA), rank, alpha, scale, tensors, base, shape (of the tensors' names), matches (by component),
/// whole (tensors that were trained whole), idle (of modules that nothing is computed with), problems. `model`: of the base;
/// empty: as the adapter says. `verify`: hashes that stand beside it, too.
Json inspect_adapter(const std::filesystem::path& dir, const ModelPlace& model, bool verify = true);
/// The same for people.
std::string adapter_text(const Json& report);

}  // namespace lockstep
