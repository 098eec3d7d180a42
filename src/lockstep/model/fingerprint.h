// Tells whether two machines have the same model folder, without reading all of a large one.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

/// Of config.json and the weights, or of one file of them: small files whole, of large ones the size, the beginning and pages spread evenly.
/// 16 hex digits. Throws Error when a file cannot be read.
std::string model_fingerprint(const std::filesystem::path& folder);

}  // namespace lockstep
