#include "lockstep/model/weights.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/quantised_tensor.h"
#include "lockstep/model/safetensors_header.h"
#include "lockstep/model/stored_tensor.h"
#include "lockstep/model/torch_file.h"
#include "lockstep/model/weight_files.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {

/// One with more or fewer rows than its file has.
struct ResizedMatrix {
  TensorSpec spec;
  int64_t own = 0;                  // elements of the file
  mutable std::once_flag measured;  // by whoever first reads beyond them
  mutable std::vector<float> mean;  // of the file's rows
};

}  // namespace

struct Weights::Impl {
  struct File {
    MappedFile map;
    std::vector<StoredTensor> tensors;
    enum class Of { kFolder, kKept, kBorrowed } of = Of::kFolder;
  };
  struct Place {
    size_t file, tensor;
  };
  fs::path dir;
  std::vector<File> files;
  std::vector<fs::path> borrowed_from;
  std::unordered_map<std::string, Place> places;
  std::map<std::string, MadeTensor> made;
  std::map<std::string, ResizedMatrix> resized;
  QuantisedTensors quantised;

  void add(const fs::path& path) {
    MappedFile map(path);
    auto tensors = is_torch_file(path) ? parse_torch_file(map.bytes(), path.string())
                                       : parse_safetensors_header(map.bytes(), path.string());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string& name = tensors[i].spec.name;
      const auto [at, fresh] = places.try_emplace(name, Place{files.size(), i});
      if (fresh) continue;
      throw checkpoint_error(fmt::format("{}: tensor {} stands in {} too", path.string(), name,
                                         files[at->second.file].map.path().filename().string()),
                             "remove the copy that is not meant");
    }
    files.push_back({std::move(map), std::move(tensors)});
  }

  /// Of another folder's file those tensors whose names begin with `from`.
  void lend(File file, const std::string& from, const std::string& to, File::Of of) {
    file.of = of;
    std::erase_if(file.tensors, [&](const StoredTensor& one) { return !one.spec.name.starts_with(from); });
    if (file.tensors.empty()) return;
    for (size_t i = 0; i < file.tensors.size(); ++i) {
      std::string& name = file.tensors[i].spec.name;
      name = to + name.substr(from.size());
      places.emplace(name, Place{files.size(), i});
    }
    files.push_back(std::move(file));
  }

  void add_all(const WeightFiles& found) {
    for (const auto& name : found.names) add(dir / name);
    for (const auto& [tensor, file] : found.file_of) {
      const auto at = places.find(tensor);
      const std::string place =
          at == places.end() ? "in no file" : "in " + files[at->second.file].map.path().filename().string();
      if (place == "in " + file) continue;
      throw checkpoint_error(
          fmt::format("{}: tensor {}: expected in {}, found {}", found.index.string(), tensor, file, place));
    }
  }

  const Place& place(const std::string& key) const {
    const auto at = places.find(key);
    check(at != places.end(), fmt::format("tensor {} is not in {}", key, dir.string()));
    return at->second;
  }
  const StoredTensor& stored(const Place& at) const { return files[at.file].tensors[at.tensor]; }

  RawTensors raw() const {
    return {.find = [this](const std::string& name) -> const TensorSpec* {
              const auto at = places.find(name);
              return at == places.end() ? nullptr : &stored(at->second).spec;
            },
            .read = [this](const std::string& name, int64_t first,
                           std::span<uint8_t> out) { read_bytes(name, first, out); }};
  }

  /// Bytes [first, …) of the flattened tensor.
  void read_bytes(const std::string& name, int64_t first, std::span<uint8_t> out) const {
    const Place& at = place(name);
    const StoredTensor& tensor = stored(at);
    const int64_t size = dtype_bytes(tensor.spec.dtype), end = first + static_cast<int64_t>(out.size());
    check(first >= 0 && end <= tensor.spec.bytes(), name + ": bytes that it has");
    const MappedFile& map = files[at.file].map;
    const int64_t from = first / size, count = (end + size - 1) / size - from;
    std::vector<std::byte> whole(static_cast<size_t>(size == 1 ? 0 : count * size));
    const std::span<std::byte> to = size == 1 ? std::as_writable_bytes(out) : std::span(whole);
    copy_elements(tensor, map.bytes(), from, to);
    if (size > 1) std::memcpy(out.data(), whole.data() + (first - from * size), out.size());
    if (tensor.strides.empty()) map.forget(tensor.begin + static_cast<size_t>(first), out.size());
  }

  void find_all_quantised() {
    std::vector<std::string> names;
    for (const auto& [name, at] : places) names.push_back(name);
    quantised = find_quantised(names, raw(), dir.string());
  }
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
    impl->find_all_quantised();
    return Weights(std::move(impl));
  }
  impl->dir = dir;
  impl->add_all(find_weight_files(dir));
  impl->find_all_quantised();
  return Weights(std::move(impl));
}

void Weights::borrow(const BorrowedTensors& part) {
  const auto begins = [](const std::string& beginning) {
    return [&beginning](const auto& place) { return place.first.starts_with(beginning); };
  };
  const auto own = std::ranges::find_if(impl_->places, begins(part.to));
  if (own != impl_->places.end() && part.kept) {
    throw usage_error(fmt::format("{}: expected a model without {}…, found {} in {}", part.dir.string(), part.to,
                                  own->first, dir().string()),
                      "leave that file out: the model's folder has these tensors itself");
  }
  if (own != impl_->places.end()) return;
  Weights other = open(part.dir);
  const auto from = std::ranges::find_if(part.from, [&](const std::string& beginning) {
    return std::ranges::any_of(other.impl_->places, begins(beginning));
  });
  if (from == part.from.end()) {
    throw checkpoint_error(fmt::format("{}: expected tensors whose names begin with {}, found none of {}",
                                       part.dir.string(), join(part.from, " or "), other.impl_->places.size()),
                           fmt::format("{}… of the model are read from this folder: is it another model's?", part.to));
  }
  const auto of = part.kept ? Impl::File::Of::kKept : Impl::File::Of::kBorrowed;
  for (auto& file : other.impl_->files) impl_->lend(std::move(file), *from, part.to, of);
  if (!part.kept) impl_->borrowed_from.push_back(part.dir);
  impl_->find_all_quantised();
}

void Weights::make(MadeTensor tensor) {
  if (!impl_->places.contains(tensor.spec.name)) impl_->made.emplace(tensor.spec.name, std::move(tensor));
}

void Weights::set_rows(const std::string& key, int64_t rows) {
  if (quantised(key) != nullptr) {
    throw checkpoint_error(
        fmt::format("{}: expected a matrix of values, whose rows can be others, found codes of few bits in {}", key,
                    file_of(key)),
        "give the model its tokens before its matrices are quantised");
  }
  const TensorSpec* const spec = find(key);
  check(spec != nullptr && spec->shape.size() == 2 && rows > 0, key + ": a matrix that can have rows");
  const int64_t own = numel_of(spec->shape);
  TensorSpec resized = *spec;
  resized.shape[0] = rows;
  auto& one = impl_->resized[key];
  one.spec = std::move(resized);
  one.own = own;
}

bool Weights::is_borrowed(const std::string& key) const {
  const auto at = impl_->places.find(key);
  return at != impl_->places.end() && impl_->files[at->second.file].of == Impl::File::Of::kBorrowed;
}

bool Weights::borrows() const { return !impl_->borrowed_from.empty(); }

const std::vector<fs::path>& Weights::borrowed_from() const { return impl_->borrowed_from; }

const TensorSpec* Weights::find(const std::string& key) const {
  if (const auto* one = quantised(key)) return &one->spec;
  if (impl_->quantised.parts.contains(key)) return nullptr;
  if (const auto one = impl_->resized.find(key); one != impl_->resized.end()) return &one->second.spec;
  if (const auto made = impl_->made.find(key); made != impl_->made.end()) return &made->second.spec;
  const auto at = impl_->places.find(key);
  return at == impl_->places.end() ? nullptr : &impl_->stored(at->second).spec;
}

std::vector<TensorSpec> Weights::specs() const {
  std::vector<TensorSpec> out;
  for (const auto& file : impl_->files) {
    for (const auto& stored : file.tensors) {
      if (const TensorSpec* spec = find(stored.spec.name)) out.push_back(*spec);
    }
  }
  for (const auto& [name, made] : impl_->made) out.push_back(made.spec);
  return out;
}

std::string Weights::file_of(const std::string& key) const {
  if (impl_->made.contains(key)) return "no file (made by the seed)";
  const Impl::File& file = impl_->files[impl_->place(key).file];
  const fs::path& path = file.map.path();
  return file.of == Impl::File::Of::kFolder ? path.filename().string() : path.string();
}

std::vector<std::string> Weights::files() const {
  std::vector<std::string> out;
  for (const auto& file : impl_->files) {
    if (file.of == Impl::File::Of::kFolder) out.push_back(file.map.path().filename().string());
  }
  return out;
}

const fs::path& Weights::dir() const { return impl_->dir; }

int64_t Weights::total_bytes() const {
  int64_t total = 0;
  for (const auto& [key, place] : impl_->places) total += impl_->stored(place).spec.bytes();
  for (const auto& [key, made] : impl_->made) total += made.spec.bytes();
  for (const auto& [key, resized] : impl_->resized) {
    total += resized.spec.bytes() - resized.own * dtype_bytes(resized.spec.dtype);
  }
  return total;
}

int64_t Weights::borrowed_bytes() const {
  int64_t total = 0;
  for (const auto& [key, place] : impl_->places) {
    if (is_borrowed(key)) total += impl_->stored(place).spec.bytes();
  }
  return total;
}

const QuantisedTensor* Weights::quantised(const std::string& key) const {
  const auto at = impl_->quantised.tensors.find(key);
  return at == impl_->quantised.tensors.end() ? nullptr : &at->second;
}

bool Weights::same_bytes(const std::string& one, const std::string& two) const {
  const auto a = impl_->places.find(one), b = impl_->places.find(two);
  if (a == impl_->places.end() || b == impl_->places.end() || a->second.file != b->second.file) return false;
  const StoredTensor &first = impl_->stored(a->second), &second = impl_->stored(b->second);
  return first.begin == second.begin && first.end == second.end && first.strides == second.strides &&
         first.spec.dtype == second.spec.dtype && first.spec.shape == second.spec.shape;
}

bool Weights::any_quantised() const { return !impl_->quantised.tensors.empty(); }

void Weights::read_quantised(const std::string& key, int64_t begin, std::span<uint8_t> out) const {
  lockstep::read_quantised(impl_->quantised.tensors.at(key), impl_->raw(), begin, out);
}

void Weights::read_scales(const std::string& key, int64_t first, std::span<float> out) const {
  lockstep::read_scales(impl_->quantised.tensors.at(key), impl_->raw(), first, out);
}

void Weights::read_flat(const std::string& key, int64_t begin, const Tensor& out) const {
  const auto at = impl_->resized.find(key);
  if (at == impl_->resized.end()) return read_own(key, begin, out);
  const ResizedMatrix& resized = at->second;
  const int64_t count = out.numel(), width = resized.spec.shape[1];
  check(begin >= 0 && count <= numel_of(resized.spec.shape) - begin, key + ": elements that it has");
  const Tensor flat = out.view({count});
  const int64_t of_file = std::clamp<int64_t>(resized.own - begin, 0, count);
  if (of_file > 0) read_own(key, begin, flat.narrow(0, 0, of_file));
  if (of_file == count) return;
  std::call_once(resized.measured, [&] { resized.mean = mean_row(key, resized.own / width, width); });
  std::vector<float> values(static_cast<size_t>(count - of_file));
  for (int64_t i = 0; i < count - of_file; ++i) {
    values[static_cast<size_t>(i)] = resized.mean[static_cast<size_t>((begin + of_file + i) % width)];
  }
  flat.narrow(0, of_file, count - of_file).copy_(view_memory(values.data(), {count - of_file}, Dtype::kF32));
}

std::vector<float> Weights::mean_row(const std::string& key, int64_t rows, int64_t width) const {
  constexpr int64_t kElements = 1 << 20;
  const int64_t at_once = std::clamp<int64_t>(kElements / width, 1, rows);
  std::vector<double> sums(static_cast<size_t>(width));
  const Tensor part = empty({at_once, width}, Dtype::kF32);
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    read_own(key, row * width, part.narrow(0, 0, count));
    const auto* value = static_cast<const float*>(part.data_ptr());
    for (int64_t i = 0; i < count; ++i) {
      for (auto& sum : sums) sum += *value++;
    }
  }
  std::vector<float> mean(sums.size());
  std::ranges::transform(sums, mean.begin(),
                         [&](double sum) { return static_cast<float>(sum / static_cast<double>(rows)); });
  return mean;
}

/// What the files have, or the seed.
void Weights::read_own(const std::string& key, int64_t begin, const Tensor& out) const {
  if (const auto found = impl_->made.find(key); found != impl_->made.end()) {
    const MadeTensor& made = found->second;
    check(begin >= 0 && out.numel() <= numel_of(made.spec.shape) - begin, key + ": elements that it has");
    return fill_uniform(out, made.bound, made.seed, key, begin);
  }
  const auto& place = impl_->place(key);
  const StoredTensor& stored = impl_->stored(place);
  const auto* codes = quantised(key);
  const TensorSpec& spec = codes != nullptr ? codes->spec : stored.spec;
  const int64_t count = out.numel();
  check(begin >= 0 && count <= numel_of(spec.shape) - begin,
        fmt::format("{}: elements [{}, {}) of {}", key, begin, begin + count, spec.describe()));
  check(out.is_contiguous() && out.device().is_cpu(), key + ": read_flat fills contiguous host tensors");
  if (count == 0) return;
  if (codes != nullptr) return read_unpacked(*codes, impl_->raw(), begin, out);
  const MappedFile& map = impl_->files[place.file].map;
  const auto size = static_cast<size_t>(dtype_bytes(spec.dtype));
  const auto bytes_of = [&](int64_t elements) { return static_cast<size_t>(elements) * size; };
  // What has been read is the page cache's again: else a process would hold its weights twice.
  const auto forget = [&] {
    if (stored.strides.empty()) return map.forget(stored.begin + bytes_of(begin), bytes_of(count));
    map.forget(stored.begin, stored.end - stored.begin);
  };
  if (dtype_of(out) == spec.dtype) {
    copy_elements(stored, map.bytes(), begin, {static_cast<std::byte*>(out.data_ptr()), bytes_of(count)});
    return forget();
  }
  // Through a small aligned buffer: other writers do not align the data, and whole copies would double the memory.
  constexpr int64_t kChunk = 1 << 16;
  std::vector<std::max_align_t> buffer(bytes_of(std::min(count, kChunk)) / sizeof(std::max_align_t) + 1);
  const Tensor flat = out.view({count});
  for (int64_t done = 0; done < count; done += kChunk) {
    const int64_t now = std::min(kChunk, count - done);
    copy_elements(stored, map.bytes(), begin + done, {reinterpret_cast<std::byte*>(buffer.data()), bytes_of(now)});
    flat.narrow(0, done, now).copy_(view_memory(buffer.data(), {now}, spec.dtype));
  }
  forget();
}

Tensor Weights::read(const std::string& key) const {
  const TensorSpec* const found = find(key);
  check(found != nullptr, key + " is a tensor of the folder");
  const TensorSpec& spec = *found;
  Tensor out = empty(spec.shape, spec.dtype);
  read_flat(key, 0, out);
  return out;
}

}  // namespace lockstep
