#include "lockstep/model/safetensors_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

UserError write_failed(const fs::path& path, int64_t needed, int error) {
  std::error_code unknown;
  const auto space = fs::space(path.parent_path(), unknown);
  const std::string left = unknown ? "unknown" : format_bytes(static_cast<int64_t>(space.available));
  return data_error(fmt::format("{}: {} needed, {} left on that disk: {}", path.string(), format_bytes(needed), left,
                                std::strerror(error)),
                    error == ENOSPC ? "free space or choose another output_dir" : "is the folder writable?");
}

/// A file of known size, written at any place.
class OutFile {
 public:
  OutFile(fs::path path, int64_t bytes) : path_(std::move(path)), bytes_(bytes) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) throw write_failed(path_, bytes_, errno);
    // Some file systems cannot reserve; a full disk then shows at write.
    const int error = ::posix_fallocate(fd_, 0, bytes_);
    if (error == ENOSPC || error == EFBIG) throw fail(error);
    if (::ftruncate(fd_, bytes_) != 0) throw fail(errno);
  }
  ~OutFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OutFile(OutFile&& other) noexcept
      : path_(std::move(other.path_)), bytes_(other.bytes_), fd_(std::exchange(other.fd_, -1)) {}
  OutFile& operator=(OutFile&&) = delete;

  void write(const void* data, size_t size, int64_t at) {
    const char* from = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t done = ::pwrite(fd_, from, size, at);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) throw fail(done < 0 ? errno : ENOSPC);
      from += done;
      at += done;
      size -= static_cast<size_t>(done);
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) throw fail(errno);
    const int error = ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
    if (error != 0) throw fail(error);
  }
  std::string name() const { return path_.filename().string(); }

 private:
  /// Half a file must not stay behind on a full disk.
  UserError fail(int error) {
    ::close(std::exchange(fd_, -1));
    std::error_code ignored;
    UserError failure = write_failed(path_, bytes_, error);
    fs::remove(path_, ignored);
    return failure;
  }
  fs::path path_;
  int64_t bytes_;
  int fd_ = -1;
};

/// Larger elements first keeps everything aligned; then by name. Source: huggingface/safetensors serialize.
void sort_as_reference(std::vector<TensorSpec>& specs) {
  std::sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const auto left = dtype_bytes(a.dtype), right = dtype_bytes(b.dtype);
    return left != right ? left > right : a.name < b.name;
  });
}

/// Length, JSON, padding with spaces to a multiple of 8.
std::string header_bytes(const std::vector<TensorSpec>& specs, const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t at = 0;
  for (const auto& spec : specs) {
    header[spec.name] = {
        {"dtype", safetensors_name(spec.dtype)}, {"shape", spec.shape}, {"data_offsets", {at, at + spec.bytes()}}};
    at += spec.bytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return out + text;
}

std::vector<std::vector<TensorSpec>> cut_into_shards(std::vector<TensorSpec> specs, int64_t max_bytes) {
  std::vector<std::vector<TensorSpec>> shards(1);
  int64_t bytes = 0;
  for (auto& spec : specs) {
    if (!shards.back().empty() && bytes + spec.bytes() > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += spec.bytes();
    shards.back().push_back(std::move(spec));
  }
  return shards;
}

}  // namespace

struct SafetensorsWriter::Impl {
  struct Place {
    TensorSpec spec;
    size_t file;
    int64_t at;
    int64_t written = 0;
  };
  fs::path dir;
  SafetensorsOptions options;
  std::vector<OutFile> files;
  std::unordered_map<std::string, Place> places;

  void open_shard(std::vector<TensorSpec> specs, const std::string& name) {
    sort_as_reference(specs);
    const std::string header = header_bytes(specs, options.metadata);
    auto at = static_cast<int64_t>(header.size());
    for (const auto& spec : specs) {
      const bool fresh = places.try_emplace(spec.name, Place{spec, files.size(), at}).second;
      check(fresh, "tensor " + spec.name + " is to be written twice");
      at += spec.bytes();
    }
    files.emplace_back(dir / name, at);
    files.back().write(header.data(), header.size(), 0);
  }

  Place& place(const std::string& key) {
    const auto found = places.find(key);
    check(found != places.end(), "tensor " + key + " was not announced to the writer");
    return found->second;
  }
};

SafetensorsWriter::SafetensorsWriter(const fs::path& dir, std::vector<TensorSpec> specs, SafetensorsOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->dir = dir;
  impl_->options = std::move(options);
  auto shards = cut_into_shards(std::move(specs), impl_->options.max_shard_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string& stem = impl_->options.stem;
    impl_->open_shard(std::move(shards[i]),
                      shards.size() == 1 ? stem + ".safetensors"
                                         : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, shards.size()));
  }
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(const std::string& key, const Tensor& value) {
  const TensorSpec& spec = impl_->place(key).spec;
  const Shape shape = shape_of(value);
  if (shape != spec.shape) {
    throw checkpoint_error(
        fmt::format("{}: expected {}, found {}", key, spec.describe(), spec_of(value, key).describe()));
  }
  write_flat(key, 0, value);
}

void SafetensorsWriter::write_flat(const std::string& key, int64_t begin, const Tensor& values) {
  auto& place = impl_->place(key);
  const int64_t count = values.numel();
  check(begin >= 0 && begin + count <= numel_of(place.spec.shape),
        fmt::format("{}: elements [{}, {}) of {}", key, begin, begin + count, place.spec.describe()));
  const int64_t size = dtype_bytes(place.spec.dtype);
  constexpr int64_t kChunk = 1 << 22;  // elements converted at once: a bounded copy, whatever the tensor
  const Tensor flat = values.detach().reshape({count});
  for (int64_t done = 0; done < count; done += kChunk) {
    const int64_t now = std::min(kChunk, count - done);
    const Tensor piece = to_dtype(flat.narrow(0, done, now), place.spec.dtype).cpu().contiguous();
    impl_->files[place.file].write(piece.data_ptr(), static_cast<size_t>(now * size), place.at + (begin + done) * size);
  }
  place.written += count;
}

std::vector<std::string> SafetensorsWriter::finish() {
  Json weight_map = Json::object();
  int64_t total = 0;
  std::map<std::string, const Impl::Place*> sorted;
  for (const auto& [key, place] : impl_->places) {
    check(place.written == numel_of(place.spec.shape),
          fmt::format("{}: {} of {} elements were written", key, place.written, numel_of(place.spec.shape)));
    total += place.spec.bytes();
    sorted.emplace(key, &place);
  }
  std::vector<std::string> names;
  for (auto& file : impl_->files) {
    file.sync();
    names.push_back(file.name());
  }
  if (names.size() == 1) return names;
  for (const auto& [key, place] : sorted) weight_map[key] = names[place->file];
  const std::string index = impl_->options.stem + ".safetensors.index.json";
  write_json(impl_->dir / index, {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}});
  names.push_back(index);
  return names;
}

}  // namespace lockstep
