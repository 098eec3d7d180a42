// Files as torch.save writes them, made by hand for tests: zip members and pickles, right and wrong ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::test_torch {

inline std::string little(uint64_t value, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(i < sizeof value ? value >> (8 * i) : 0);
  return out;
}

struct ZipOptions {
  bool zip64 = false;  // all numbers stand in zip64's fields, needed or not
  std::string comment = {};
};

/// One member: what its header and the directory say may be made wrong.
struct ZipPart {
  std::string name = {}, bytes = {};
  uint64_t zeros = 0;  // before `bytes`: a hole where the file is written
  uint16_t flags = 0, method = 0;
  std::string local_name = name;
};

/// A zip file whose data begins at multiples of 64 bytes, as torch's. CRCs are zero: they are not looked at.
class Zip {
 public:
  explicit Zip(ZipOptions options = {}) : options_(std::move(options)) {}

  void add(const ZipPart& part) {
    const uint64_t at = size_, size = part.zeros + part.bytes.size();
    const bool large = options_.zip64;
    const size_t header = 30 + part.local_name.size() + 4;
    const std::string padding((64 - (at + header) % 64) % 64, 'Z');
    put("PK\3\4" + common(part, large ? kIn64 : size) + little(part.local_name.size(), 2) +
        little(4 + padding.size(), 2) + part.local_name + "FB" + little(padding.size(), 2) + padding);
    size_ += part.zeros;
    put(part.bytes);
    const std::string extra =
        large ? little(1, 2) + little(24, 2) + little(size, 8) + little(size, 8) + little(at, 8) : "";
    directory_ += "PK\1\2" + little(45, 2) + common(part, large ? kIn64 : size) + little(part.name.size(), 2) +
                  little(extra.size(), 2) + little(0, 2 + 2 + 2 + 4) + little(large ? kIn64 : at, 4) + part.name +
                  extra;
    ++entries_;
  }

  std::string bytes() const {
    std::string out;
    for (const auto& [at, piece] : finished()) out += std::string(at - out.size(), '\0') + piece;
    return out;
  }
  void write(const std::filesystem::path& path) const {
    std::ofstream out(path, std::ios::binary);
    for (const auto& [at, piece] : finished()) {
      out.seekp(static_cast<std::streamoff>(at));
      out << piece;
    }
  }

 private:
  static constexpr uint64_t kIn64 = 0xFFFFFFFF;
  struct Piece {
    uint64_t at;
    std::string bytes;
  };

  static std::string common(const ZipPart& part, uint64_t size) {
    return little(45, 2) + little(part.flags, 2) + little(part.method, 2) + little(0, 2 + 2 + 4) + little(size, 4) +
           little(size, 4);
  }
  void put(const std::string& piece) {
    pieces_.push_back({size_, piece});
    size_ += piece.size();
  }
  std::vector<Piece> finished() const {
    std::string end = directory_;
    if (options_.zip64) {
      end += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) + little(entries_, 8) +
             little(entries_, 8) + little(directory_.size(), 8) + little(size_, 8);
      end += "PK\6\7" + little(0, 4) + little(size_ + directory_.size(), 8) + little(1, 4);
    }
    end += "PK\5\6" + little(0, 4) + little(entries_, 2) + little(entries_, 2) +
           little(options_.zip64 ? kIn64 : directory_.size(), 4) + little(options_.zip64 ? kIn64 : size_, 4) +
           little(options_.comment.size(), 2) + options_.comment;
    auto out = pieces_;
    out.push_back({size_, end});
    return out;
  }

  ZipOptions options_;
  std::vector<Piece> pieces_;
  std::string directory_;
  uint64_t size_ = 0, entries_ = 0;
};

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

// Pieces of pickles, in the operations of protocol 2.

inline std::string unicode(std::string_view text) { return "X" + little(text.size(), 4) + std::string(text); }
inline std::string integer(int64_t value) { return "\x8a\x08" + little(static_cast<uint64_t>(value), 8); }
inline std::string name(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string tuple(const std::string& parts) { return "(" + parts + "t"; }
inline std::string integers(std::span<const int64_t> values) {
  std::string parts;
  for (const int64_t value : values) parts += integer(value);
  return tuple(parts);
}
/// A call with the arguments `parts`.
inline std::string call(const std::string& called, const std::string& parts) { return called + tuple(parts) + "R"; }
inline std::string ordered_dict() { return name("collections", "OrderedDict") + ")R"; }
/// A whole pickle: the dict of `items` (key, value, key, value).
inline std::string dict(const std::string& items) { return "\x80\x02}(" + items + "u."; }

/// A tensor of torch.FloatStorage `key` with so many elements, unless said otherwise.
struct Tensor2 {
  std::vector<int64_t> size = {}, stride = {};
  int64_t offset = 0, numel = 6;
  std::string key = "0", module = "torch", storage = "FloatStorage";
  std::string behind = {};  // more arguments
};
inline std::string storage(const Tensor2& t) {
  return tuple(unicode("storage") + name(t.module, t.storage) + unicode(t.key) + unicode("cuda:0") + integer(t.numel)) +
         "Q";
}
inline std::string arguments(const Tensor2& t) {
  return storage(t) + integer(t.offset) + integers(t.size) + integers(t.stride) + "\x89" + ordered_dict() + t.behind;
}
inline std::string tensor(const Tensor2& t) { return call(name("torch._utils", "_rebuild_tensor_v2"), arguments(t)); }

/// The whole file of a pickle and storage 0.
inline std::string file_of(const std::string& pickle, const std::string& data, ZipOptions options = {}) {
  Zip zip(std::move(options));
  zip.add({.name = "pytorch_model/data.pkl", .bytes = pickle});
  zip.add({.name = "pytorch_model/byteorder", .bytes = "little"});
  zip.add({.name = "pytorch_model/data/0", .bytes = data});
  zip.add({.name = "pytorch_model/version", .bytes = "3\n"});
  return zip.bytes();
}

}  // namespace lockstep::test_torch
