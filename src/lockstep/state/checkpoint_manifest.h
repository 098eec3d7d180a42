// The list of a checkpoint's files with sizes and hashes: written last, so a folder with a manifest that holds is
// whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr const char* kManifestName = "lockstep_manifest.json";

struct ManifestEntry {
  int64_t bytes = 0;
  std::string xxh64;  // 16 hex digits
  bool operator==(const ManifestEntry&) const = default;
};

/// Reads the whole file. Throws UserError(kCheckpoint).
ManifestEntry describe_file(const std::filesystem::path& path);

/// Every file of the folder (and of its sub-folders) but the manifest: names relative to `dir`.
std::map<std::string, ManifestEntry> describe_folder(const std::filesystem::path& dir);

/// Flushes every file, writes the manifest, flushes it and the folder. Throws UserError(kCheckpoint).
void seal_folder(const std::filesystem::path& dir, int64_t step, const std::map<std::string, ManifestEntry>& files);

/// Throws UserError(kCheckpoint) naming the first file that is missing, of another size, or of another content than
/// the manifest says, with both figures. A model card (README.md) may say what it likes.
void verify_folder(const std::filesystem::path& dir);

/// What verify_folder finds without reading contents: a manifest, and each file of its size.
bool has_all_bytes(const std::filesystem::path& dir);

/// As verify_folder, of these files alone, as far as the folder has a manifest that names them.
void verify_files(const std::filesystem::path& dir, const std::vector<std::string>& names);

/// Flushes a folder's own entries to the disk.
void sync_folder(const std::filesystem::path& dir);

}  // namespace lockstep
