#include "lockstep/model/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/safetensors_header.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

UserError no_weights(const fs::path& dir) {
  if (!fs::is_directory(dir)) {
    return checkpoint_error(
        fmt::format("{}: expected a folder with {}, found {}", dir.string(), kSingle, found_for_folder(dir)),
        "models are read from local folders: name the one that holds the checkpoint, or download it first");
  }
  std::vector<std::string> pickles, shards;
  bool adapter = false;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    adapter = adapter || name == "adapter_model.safetensors";
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") pickles.push_back(name);
    if (extension == ".safetensors") shards.push_back(name);
  }
  std::sort(pickles.begin(), pickles.end());
  std::sort(shards.begin(), shards.end());
  if (adapter) {
    return checkpoint_error(fmt::format("{}: expected {}, found adapter_model.safetensors: a LoRA adapter, not a model",
                                        dir.string(), kSingle),
                            "give the folder of the base model");
  }
  if (!shards.empty()) {
    return checkpoint_error(fmt::format("{}: expected {} or {}, found {} without an index", dir.string(), kSingle,
                                        kIndex, join(shards, " ")),
                            "copy the index file too");
  }
  if (!pickles.empty()) {
    return checkpoint_error(
        fmt::format("{}: expected {}, found only {}: pickles can run code when opened and are not read", dir.string(),
                    kSingle, join(pickles, " ")),
        fmt::format(
            "convert them: python3 -c \"from transformers import AutoModel; AutoModel.from_pretrained('{0}', "
            "torch_dtype='auto').save_pretrained('{0}-safetensors')\" (or the model's own class), then copy the "
            "tokenizer files",
            dir.string()));
  }
  return checkpoint_error(fmt::format("{}: expected {} or {}, found neither", dir.string(), kSingle, kIndex));
}

/// tensor -> file name, from the index.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const Json index = read_json(path);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object() || map->empty()) {
    throw checkpoint_error(fmt::format("{}: expected an object \"weight_map\" of tensor to file", path.string()));
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>()) {
      throw checkpoint_error(fmt::format("{}: weight_map {}: expected the name of a file in this folder, found {}",
                                         path.string(), tensor, file.dump()));
    }
    files.emplace(tensor, file.get<std::string>());
  }
  return files;
}

}  // namespace

struct Weights::Impl {
  struct File {
    MappedFile map;
    SafetensorsHeader header;
  };
  struct Place {
    size_t file, tensor;
  };
  fs::path dir;
  std::vector<File> files;
  std::unordered_map<std::string, Place> places;

  void add(const fs::path& path) {
    MappedFile map(path);
    SafetensorsHeader header = parse_safetensors_header(map.bytes(), path.string());
    for (size_t i = 0; i < header.tensors.size(); ++i) {
      const std::string& name = header.tensors[i].spec.name;
      const auto [at, fresh] = places.try_emplace(name, Place{files.size(), i});
      if (fresh) continue;
      throw checkpoint_error(fmt::format("{}: tensor {} stands in {} too", path.string(), name,
                                         files[at->second.file].map.path().filename().string()),
                             "remove the copy that is not meant");
    }
    files.push_back({std::move(map), std::move(header)});
  }

  void add_indexed(const fs::path& index_path) {
    const auto index = read_index(index_path);
    std::vector<std::string> names, absent;
    for (const auto& [tensor, file] : index) names.push_back(file);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const auto& name : names) {
      if (!fs::is_regular_file(dir / name)) absent.push_back(name);
    }
    if (!absent.empty()) {
      throw checkpoint_error(fmt::format("{}: {} of {} files are not there: {}", index_path.string(), absent.size(),
                                         names.size(), join(absent, " ")),
                             "the download is not complete");
    }
    for (const auto& name : names) add(dir / name);
    for (const auto& [tensor, file] : index) {
      const auto at = places.find(tensor);
      const std::string found =
          at == places.end() ? "in no file" : "in " + files[at->second.file].map.path().filename().string();
      if (found == "in " + file) continue;
      throw checkpoint_error(
          fmt::format("{}: tensor {}: expected in {}, found {}", index_path.string(), tensor, file, found));
    }
  }

  const Place& place(const std::string& key) const {
    const auto at = places.find(key);
    check(at != places.end(), fmt::format("tensor {} is not in {}", key, dir.string()));
    return at->second;
  }
  const StoredTensor& stored(const Place& at) const { return files[at.file].header.tensors[at.tensor]; }
};

Weights::Weights(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Weights::~Weights() = default;
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;

Weights Weights::open(const fs::path& dir) {
  auto impl = std::make_unique<Impl>();
  if (fs::is_regular_file(dir)) {
    impl->dir = dir.parent_path();
    impl->add(dir);
    return Weights(std::move(impl));
  }
  impl->dir = dir;
  if (fs::is_regular_file(dir / kSingle)) {
    impl->add(dir / kSingle);
  } else if (fs::is_regular_file(dir / kIndex)) {
    impl->add_indexed(dir / kIndex);
  } else {
    throw no_weights(dir);
  }
  return Weights(std::move(impl));
}

const TensorSpec* Weights::find(const std::string& key) const {
  const auto at = impl_->places.find(key);
  return at == impl_->places.end() ? nullptr : &impl_->stored(at->second).spec;
}

std::vector<TensorSpec> Weights::specs() const {
  std::vector<TensorSpec> out;
  for (const auto& file : impl_->files) {
    for (const auto& stored : file.header.tensors) out.push_back(stored.spec);
  }
  return out;
}

std::string Weights::file_of(const std::string& key) const {
  return impl_->files[impl_->place(key).file].map.path().filename().string();
}

std::vector<std::string> Weights::files() const {
  std::vector<std::string> out;
  for (const auto& file : impl_->files) out.push_back(file.map.path().filename().string());
  return out;
}

const fs::path& Weights::dir() const { return impl_->dir; }

int64_t Weights::total_bytes() const {
  int64_t total = 0;
  for (const auto& [key, place] : impl_->places) total += impl_->stored(place).spec.bytes();
  return total;
}

void Weights::read_flat(const std::string& key, int64_t begin, const Tensor& out) const {
  const auto& place = impl_->place(key);
  const auto& [spec, first, last] = impl_->stored(place);
  const int64_t count = out.numel();
  check(begin >= 0 && count <= numel_of(spec.shape) - begin,
        fmt::format("{}: elements [{}, {}) of {}", key, begin, begin + count, spec.describe()));
  check(out.is_contiguous() && out.device().is_cpu(), key + ": read_flat fills contiguous host tensors");
  if (count == 0) return;
  const auto& file = impl_->files[place.file];
  const auto size = static_cast<size_t>(dtype_bytes(spec.dtype));
  const std::byte* source =
      file.map.bytes().data() + file.header.data_begin + first + static_cast<size_t>(begin) * size;
  // What has been read is the page cache's again: else a process would hold its weights twice.
  const auto forget = [&] {
    file.map.forget(static_cast<size_t>(source - file.map.bytes().data()), static_cast<size_t>(count) * size);
  };
  if (dtype_of(out) == spec.dtype) {
    std::memcpy(out.data_ptr(), source, static_cast<size_t>(count) * size);
    return forget();
  }
  // Through a small aligned buffer: other writers do not align the data, and whole copies would double the memory.
  constexpr int64_t kChunk = 1 << 16;
  std::vector<std::max_align_t> buffer(static_cast<size_t>(std::min(count, kChunk)) * size / sizeof(std::max_align_t) +
                                       1);
  const Tensor flat = out.view({count});
  for (int64_t done = 0; done < count; done += kChunk) {
    const int64_t now = std::min(kChunk, count - done);
    std::memcpy(buffer.data(), source + static_cast<size_t>(done) * size, static_cast<size_t>(now) * size);
    flat.narrow(0, done, now).copy_(view_memory(buffer.data(), {now}, spec.dtype));
  }
  forget();
}

Tensor Weights::read(const std::string& key) const {
  const TensorSpec& spec = impl_->stored(impl_->place(key)).spec;
  Tensor out = empty(spec.shape, spec.dtype);
  read_flat(key, 0, out);
  return out;
}

}  // namespace lockstep
