#include "lockstep/model/fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/guard/call.h"  // hash_bytes
#include "lockstep/model/weight_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kWhole = uintmax_t{64} << 20;  // bytes of a file that is read to its end
constexpr size_t kBlock = size_t{1} << 20, kPage = 4096;
constexpr uintmax_t kPages = 256;

uint64_t mixed(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x9E3779B97F4A7C15ULL + 1; }

uint64_t hash_of_file(const fs::path& path) {
  const uintmax_t size = fs::file_size(path);
  uint64_t hash = mixed(0, size);
  std::ifstream file(path, std::ios::binary);
  std::string block;
  const auto take = [&](uintmax_t at, size_t count) {
    block.resize(static_cast<size_t>(std::min<uintmax_t>(count, size - at)));
    file.seekg(static_cast<std::streamoff>(at));
    if (!file.read(block.data(), static_cast<std::streamsize>(block.size()))) {
      throw checkpoint_error(fmt::format("{}: cannot be read at byte {}", path.string(), at));
    }
    hash = mixed(hash, hash_bytes(block));
  };
  if (size <= kWhole) {
    for (uintmax_t at = 0; at < size; at += kBlock) take(at, kBlock);
    return hash;
  }
  take(0, kBlock);
  for (uintmax_t page = 1; page <= kPages; ++page) take((size - kPage) / kPages * page, kPage);
  return hash;
}

/// Of their names and contents, in the order of the names.
uint64_t hash_of_files(const fs::path& folder, const std::function<bool(const fs::path&)>& is_read) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_read(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  uint64_t hash = 0;
  for (const auto& path : files) hash = mixed(mixed(hash, hash_bytes(path.filename().string())), hash_of_file(path));
  return hash;
}

}  // namespace

std::string model_fingerprint(const ModelPlace& place) {
  const fs::path& folder = place.folder;
  const bool of_torch = reads_torch_files(folder);
  uint64_t hash = hash_of_files(folder, [&](const fs::path& path) {
    const std::string name = path.filename().string();
    return path.extension() == ".safetensors" || name == "config.json" ||
           (of_torch && is_torch_file(path) && name.starts_with("pytorch_model"));
  });
  for (const auto& token : place.new_tokens) hash = mixed(hash, hash_bytes(token));
  const std::string own = fmt::format("{:016x}", hash);
  const fs::path& projector = place.joint.projector;
  return projector.empty() ? own : fmt::format("{}+{:016x}", own, hash_of_file(projector));
}

std::string spelling_fingerprint(const ModelPlace& place) {
  const std::set<std::string> names{"tokenizer.json",
                                    "tokenizer_config.json",
                                    "tokenizer.model",
                                    "conversation.py",
                                    "vocab.json",
                                    "merges.txt",
                                    "added_tokens.json",
                                    "special_tokens_map.json",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    "processor_config.json",
                                    "preprocessor_config.json",
                                    "video_preprocessor_config.json",
                                    "generation_config.json"};
  return fmt::format("{:016x}", hash_of_files(place.folder, [&](const fs::path& path) {
                       return names.contains(path.filename().string());
                     }));
}

}  // namespace lockstep
