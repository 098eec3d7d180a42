#include "lockstep/state/checkpoint_manifest.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <xxhash.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interruption.h"
#include "lockstep/base/json.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFormat = "lockstep checkpoint 1";
constexpr const char* kCard = "README.md";  // people write in it, and no program reads it

/// A path's descriptor, flushed and closed.
void sync_path(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  const bool done = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!done) throw data_error(fmt::format("{}: cannot be flushed to disk: {}", path.string(), std::strerror(error)));
}

Json read_manifest(const fs::path& dir) {
  if (!fs::exists(dir / kManifestName)) {
    throw checkpoint_error(
        fmt::format("{}: expected {}, found none: not a whole checkpoint of lockstep", dir.string(), kManifestName));
  }
  Json manifest = read_json(dir / kManifestName);
  const auto has = [&](const char* key, Json::value_t kind) {
    return manifest.is_object() && manifest.contains(key) && manifest[key].type() == kind;
  };
  if (!has("format", Json::value_t::string) || manifest["format"] != kFormat || !has("files", Json::value_t::object)) {
    throw checkpoint_error(
        fmt::format("{}: expected format \"{}\" and a table \"files\"", (dir / kManifestName).string(), kFormat));
  }
  return manifest;
}

std::map<std::string, ManifestEntry> manifest_entries(const fs::path& dir) {
  const Json manifest = read_manifest(dir);
  std::map<std::string, ManifestEntry> entries;
  try {
    for (const auto& [name, entry] : manifest["files"].items()) {
      if (fs::path(name).filename() == kCard) continue;
      // A name that leads out of the folder would have any file of this machine read.
      const fs::path inside = fs::path(name).lexically_normal();
      if (inside.is_absolute() || inside.empty() || *inside.begin() == "..") {
        throw checkpoint_error(
            fmt::format("{}: expected names of files in this folder, found {}", (dir / kManifestName).string(), name));
      }
      const Json& bytes = entry.at("bytes");
      if (!bytes.is_number_integer()) {
        throw checkpoint_error(fmt::format("{}: {}: expected a number of bytes, found {}",
                                           (dir / kManifestName).string(), name, cut_text(bytes.dump())));
      }
      entries[name] = {bytes.get<int64_t>(), entry.at("xxh64").get<std::string>()};
    }
  } catch (const Json::exception& error) {
    throw checkpoint_error(fmt::format("{}: {}", (dir / kManifestName).string(), error.what()));
  }
  return entries;
}

void verify_size(const fs::path& path, const ManifestEntry& expected) {
  if (!fs::is_regular_file(path)) {
    throw checkpoint_error(
        fmt::format("{}: expected a file of {} bytes (manifest), found none", path.string(), expected.bytes));
  }
  const auto size = static_cast<int64_t>(fs::file_size(path));
  if (size == expected.bytes) return;
  throw checkpoint_error(fmt::format("{}: expected {} bytes (manifest), found {}", path.string(), expected.bytes, size),
                         "the file was cut or changed after it was saved; take an earlier checkpoint");
}

void verify_file(const fs::path& path, const ManifestEntry& expected) {
  verify_size(path, expected);
  const ManifestEntry found = describe_file(path);
  if (found == expected) return;
  throw checkpoint_error(
      fmt::format("{}: expected xxh64 {} (manifest), found {}", path.string(), expected.xxh64, found.xxh64),
      "the file was changed after it was saved; take an earlier checkpoint");
}

}  // namespace

ManifestEntry describe_file(const fs::path& path) {
  constexpr size_t kStretch = size_t{8} << 20;  // of the file that is in this process's memory at a time
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::unique_ptr<XXH64_state_t, XXH_errorcode (*)(XXH64_state_t*)> hash(XXH64_createState(), &XXH64_freeState);
  XXH64_reset(hash.get(), 0);
  for (size_t begin = 0; begin < bytes.size(); begin += kStretch) {
    interruption_point();
    const auto part = bytes.subspan(begin, std::min(kStretch, bytes.size() - begin));
    XXH64_update(hash.get(), part.data(), part.size());
    file.forget(begin, part.size());
  }
  return {static_cast<int64_t>(bytes.size()), fmt::format("{:016x}", XXH64_digest(hash.get()))};
}

std::map<std::string, ManifestEntry> describe_folder(const fs::path& dir) {
  std::map<std::string, ManifestEntry> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file() || entry.path().filename() == kManifestName) continue;
    files[entry.path().lexically_relative(dir).string()] = describe_file(entry.path());
  }
  return files;
}

void sync_folder(const fs::path& dir) { sync_path(dir, O_RDONLY | O_DIRECTORY); }

void seal_folder(const fs::path& dir, int64_t step, const std::map<std::string, ManifestEntry>& files) {
  Json table = Json::object();
  for (const auto& [name, entry] : files) {
    sync_path(dir / name, O_RDONLY);
    table[name] = {{"bytes", entry.bytes}, {"xxh64", entry.xxh64}};
  }
  write_json(dir / kManifestName, {{"format", kFormat}, {"step", step}, {"files", table}});
  sync_path(dir / kManifestName, O_RDONLY);
  sync_folder(dir);
}

void verify_folder(const fs::path& dir) {
  for (const auto& [name, entry] : manifest_entries(dir)) verify_file(dir / name, entry);
}

bool has_all_bytes(const fs::path& dir) {
  try {
    for (const auto& [name, entry] : manifest_entries(dir)) verify_size(dir / name, entry);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

void verify_files(const fs::path& dir, const std::vector<std::string>& names) {
  if (!fs::exists(dir / kManifestName)) return;
  const auto entries = manifest_entries(dir);
  for (const auto& name : names) {
    const auto found = entries.find(name);
    if (found != entries.end()) verify_file(dir / name, found->second);
  }
}

}  // namespace lockstep
