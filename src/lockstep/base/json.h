// JSON files with errors that name file, line and column. Key order is kept, so that configs round-trip.
//
// Include <nlohmann/json.hpp> in the .cpp that touches values; this header costs little to include.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace lockstep {

using Json = nlohmann::ordered_json;

/// Parses a whole text. `where` names it in errors ("config.json"). Throws UserError(kCheckpoint) with line and column.
Json parse_json(std::string_view text, const std::string& where);

/// Reads and parses a file. Throws UserError(kCheckpoint) naming the path when it is missing or broken.
Json read_json(const std::filesystem::path& path);

/// Writes to a temporary name beside `path` and renames, so that no reader sees half a file.
void write_json(const std::filesystem::path& path, const Json& value, int indent = 2);

/// The whole file as bytes. Throws UserError(kData).
std::string read_text(const std::filesystem::path& path);

/// As write_json, for text.
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace lockstep
