#include "lockstep/model/zip_members.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/stored_tensor.h"  // kReloadHint

namespace lockstep {
namespace {

constexpr uint64_t kLocalMark = 0x04034b50, kEntryMark = 0x02014b50, kEndMark = 0x06054b50;
constexpr uint64_t kEnd64Mark = 0x06064b50, kLocatorMark = 0x07064b50;
constexpr size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr size_t kMostComment = 0xFFFF;
constexpr uint64_t kIn64 = 0xFFFFFFFF;                // "this number stands among the zip64 fields"
constexpr uint64_t kMostMembers = uint64_t{1} << 20;  // a model of a million tensors is none

/// Little-endian numbers of a file, within its bounds.
class Numbers {
 public:
  Numbers(std::span<const std::byte> file, const std::string& where) : file_(file), where_(where) {}

  uint64_t at(size_t place, size_t bytes) const {
    need(place, bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= static_cast<uint64_t>(file_[place + i]) << (8 * i);
    return value;
  }
  std::string_view text(size_t place, size_t bytes) const {
    need(place, bytes);
    return {reinterpret_cast<const char*>(file_.data()) + place, bytes};
  }
  size_t size() const { return file_.size(); }
  const std::string& where() const { return where_; }

  [[noreturn]] void broken(const std::string& what) const {
    throw checkpoint_error(fmt::format("{}: {}", where_, what), kReloadHint);
  }

 private:
  void need(size_t place, size_t bytes) const {
    if (place <= file_.size() && bytes <= file_.size() - place) return;
    broken(fmt::format("expected {} bytes at byte {}, the file has {}: truncated", bytes, place, file_.size()));
  }

  std::span<const std::byte> file_;
  const std::string& where_;
};

/// Where the entries stand that say what there is.
struct Directory {
  uint64_t begin = 0, bytes = 0, entries = 0;
};

/// The record at the file's very end, behind which only its comment may stand.
size_t find_end(const Numbers& file) {
  const size_t longest = std::min(file.size(), kEndBytes + kMostComment);
  for (size_t tail = kEndBytes; tail <= longest; ++tail) {
    const size_t at = file.size() - tail;
    if (file.at(at, 4) == kEndMark && file.at(at + 20, 2) == tail - kEndBytes) return at;
  }
  file.broken("expected a zip file's directory at its end, found none: truncated");
}

Directory read_directory(const Numbers& file) {
  const size_t end = find_end(file);
  Directory found{.begin = file.at(end + 16, 4), .bytes = file.at(end + 12, 4), .entries = file.at(end + 10, 2)};
  size_t last = end;
  if (end >= kLocatorBytes && file.at(end - kLocatorBytes, 4) == kLocatorMark) {
    const uint64_t at = file.at(end - kLocatorBytes + 8, 8);
    if (at > end - kLocatorBytes || end - kLocatorBytes - at < kEnd64Bytes || file.at(at, 4) != kEnd64Mark) {
      file.broken(fmt::format("expected the zip64 directory's end at byte {}, found something else", at));
    }
    found = {.begin = file.at(at + 48, 8), .bytes = file.at(at + 40, 8), .entries = file.at(at + 32, 8)};
    last = at;
  }
  if (found.begin > last || found.bytes > last - found.begin) {
    file.broken(fmt::format("the directory is said to stand in bytes [{}, +{}) of {}", found.begin, found.bytes, last));
  }
  if (found.entries > kMostMembers) {
    file.broken(fmt::format("expected at most {} members, the file says {}", kMostMembers, found.entries));
  }
  return found;
}

/// One entry of the directory.
struct Entry {
  std::string_view name;
  uint64_t flags = 0, method = 0, packed = 0, size = 0, local = 0;
  size_t next = 0;  // where the entry behind it begins
};

/// Numbers that do not fit 32 bits stand among the extra fields, in this order, and only those.
void take_zip64(const Numbers& file, Entry& entry, size_t extra, size_t extra_bytes) {
  for (size_t at = extra; at + 4 <= extra + extra_bytes;) {
    const uint64_t kind = file.at(at, 2), bytes = file.at(at + 2, 2);
    if (kind == 1) {
      size_t field = at + 4;
      for (uint64_t* number : {&entry.size, &entry.packed, &entry.local}) {
        if (*number != kIn64) continue;
        if (field + 8 > std::min(at + 4 + bytes, extra + extra_bytes)) break;
        *number = file.at(field, 8);
        field += 8;
      }
      return;
    }
    at += 4 + bytes;
  }
}

Entry read_entry(const Numbers& file, size_t at) {
  if (file.at(at, 4) != kEntryMark) {
    file.broken(fmt::format("expected an entry of the directory at byte {}, found something else", at));
  }
  const size_t name_bytes = file.at(at + 28, 2), extra_bytes = file.at(at + 30, 2), comment = file.at(at + 32, 2);
  Entry entry{.name = file.text(at + kEntryBytes, name_bytes),
              .flags = file.at(at + 8, 2),
              .method = file.at(at + 10, 2),
              .packed = file.at(at + 20, 4),
              .size = file.at(at + 24, 4),
              .local = file.at(at + 42, 4),
              .next = at + kEntryBytes + name_bytes + extra_bytes + comment};
  take_zip64(file, entry, at + kEntryBytes + name_bytes, extra_bytes);
  return entry;
}

/// Where the bytes stand: the local header has a name and extra fields of its own length (torch pads with them).
ZipMember locate(const Numbers& file, const Entry& entry, const Directory& directory) {
  constexpr uint64_t kEncrypted = 1;
  const std::string who = fmt::format("{}: member {}", file.where(), plain_text(entry.name));
  if ((entry.flags & kEncrypted) != 0) {
    throw checkpoint_error(who + ": expected plain bytes, found encrypted ones",
                           "save the model again without a password");
  }
  if (entry.method != 0 || entry.packed != entry.size) {
    throw checkpoint_error(
        fmt::format("{}: expected bytes as they are, found compressed ones (method {})", who, entry.method),
        "load and save it again with torch, which does not compress, or unpack it and pack it with zip -0");
  }
  const uint64_t at = entry.local;
  if (at > directory.begin || directory.begin - at < kLocalBytes || file.at(at, 4) != kLocalMark) {
    file.broken(
        fmt::format("member {}: expected its header at byte {}, found something else", plain_text(entry.name), at));
  }
  const size_t name_bytes = file.at(at + 26, 2), extra_bytes = file.at(at + 28, 2);
  if (file.text(at + kLocalBytes, name_bytes) != entry.name || file.at(at + 8, 2) != entry.method) {
    file.broken(fmt::format("member {}: its header at byte {} is another member's", plain_text(entry.name), at));
  }
  const uint64_t begin = at + kLocalBytes + name_bytes + extra_bytes;
  if (begin > directory.begin || entry.size > directory.begin - begin) {
    file.broken(fmt::format("member {}: expected {} bytes from byte {} on, the directory begins at {}",
                            plain_text(entry.name), entry.size, begin, directory.begin));
  }
  return {.begin = begin, .end = begin + entry.size};
}

}  // namespace

ZipMembers::ZipMembers(std::span<const std::byte> bytes, const std::string& where) {
  const Numbers file(bytes, where);
  const Directory directory = read_directory(file);
  size_t at = directory.begin;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const Entry entry = read_entry(file, at);
    if (entry.next > directory.begin + directory.bytes) {
      file.broken(fmt::format("the directory of {} bytes ends within entry {} of {}", directory.bytes, i + 1,
                              directory.entries));
    }
    if (!members_.emplace(entry.name, locate(file, entry, directory)).second) {
      file.broken(fmt::format("member {} stands there twice", plain_text(entry.name)));
    }
    if (i == 0)
      first_folder_ = entry.name.substr(0, entry.name.find('/') == std::string_view::npos ? 0 : entry.name.find('/'));
    at = entry.next;
  }
}

const ZipMember* ZipMembers::find(std::string_view name) const {
  const auto found = members_.find(name);
  return found == members_.end() ? nullptr : &found->second;
}

}  // namespace lockstep
