#include "lockstep/model/torch_file.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/pickle_reader.h"
#include "lockstep/model/torch_tensor.h"
#include "lockstep/model/zip_members.h"

namespace lockstep {
namespace {

constexpr size_t kMostTensors = size_t{1} << 20;
constexpr size_t kMostName = 1024;
constexpr int64_t kMostTotal = int64_t{1} << 56;  // bytes: views may be many times larger than what they look at

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// `text` within a command that a person may paste, where it says nothing else to Python or to a shell.
std::string quoted(std::string_view text, const char* otherwise) {
  const bool is_harmless =
      !text.empty() && text.size() <= kMaxQuoted && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' || c == '.' ||
               c == '_' || c == '-';
      });
  return is_harmless ? fmt::format("'{}'", text) : otherwise;
}

/// The command that writes what torch reads of `where` in its place; `part`: "['key']" of it, or all.
std::string saves_again(const std::string& where, const std::string& part) {
  return fmt::format(
      "python3 -c \"import torch; f = {}; torch.save(torch.load(f, map_location='cpu', weights_only=True){}, f)\"",
      quoted(where, "FILE"), part);
}

/// Torch's formats before 1.6 begin with a pickle of its number 0x1950a86a20f9469cfc6c; those before 0.2 are tar files.
bool is_of_old_torch(std::string_view file) {
  using namespace std::string_view_literals;
  static constexpr auto kMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv;
  return file.substr(0, 32).find(kMagic) != std::string_view::npos ||
         (file.size() > 262 && file.substr(257, 5) == "ustar"sv);
}

void check_kind(std::string_view file, const std::string& where) {
  if (file.starts_with("PK\3\4")) return;
  if (is_of_old_torch(file)) {
    throw checkpoint_error(
        fmt::format("{}: expected the zip format of torch.save, found the one before torch 1.6", where),
        "save it again: " + saves_again(where, ""));
  }
  if (file.starts_with("version https://git-lfs")) {
    throw checkpoint_error(where + ": expected weights, found Git's note of where they are", "git lfs pull");
  }
  throw checkpoint_error(
      fmt::format("{}: expected a zip file that torch.save has written, found {}", where,
                  file.empty() ? "an empty file" : "bytes that begin with \"" + plain_text(file.substr(0, 16)) + "\""),
      "an error page saved under this name, or a download that was cut short?");
}

/// A member of the archive's folder, "" when it is not there.
class Archive {
 public:
  Archive(std::span<const std::byte> file, const std::string& where) : file_(file), zip_(file, where) {}

  const ZipMember* find(std::string_view name) const {
    return zip_.find(fmt::format("{}/{}", zip_.first_folder(), name));
  }
  std::span<const std::byte> bytes(const ZipMember& member) const { return file_.subspan(member.begin, member.size()); }
  std::string_view text(std::string_view name) const {
    const ZipMember* const found = find(name);
    return found == nullptr ? std::string_view() : as_text(bytes(*found));
  }

 private:
  std::span<const std::byte> file_;
  ZipMembers zip_;
};

/// What stands in a file beside a model's tensors, or around them.
UserError no_tensors(const Pickle& pickle, const std::string& where, std::string_view key) {
  std::vector<std::string> keys;
  const auto& parts = pickle.root().parts;
  constexpr size_t kShown = 12;
  for (size_t i = 0; i < parts.size() && keys.size() < kShown; i += 2) {
    const auto& name = pickle[parts[i]];
    keys.push_back(name.kind == Pickle::Kind::kText ? plain_text(name.text, 40) : pickle.describe(name));
  }
  return checkpoint_error(
      fmt::format("{}: {}: expected a tensor, found a dict; the file's {} keys: {}{}", where, plain_text(key),
                  parts.size() / 2, join(keys, ", "), parts.size() / 2 > kShown ? ", …" : ""),
      "a checkpoint of a training run? Save the model's tensors alone: " +
          saves_again(where, fmt::format("[{}]", quoted(key, "KEY"))));
}

std::string_view checked_name(const Pickle& pickle, const Pickle::Node& key, const std::string& where) {
  if (key.kind != Pickle::Kind::kText) {
    throw checkpoint_error(fmt::format("{}: expected names as keys, found {}", where, pickle.describe(key)));
  }
  if (key.text.size() > kMostName || !is_plain(key.text)) {
    throw checkpoint_error(fmt::format("{}: tensor {}: expected a name of at most {} printable ASCII characters", where,
                                       plain_text(key.text), kMostName));
  }
  return key.text;
}

std::vector<StoredTensor> tensors_of(const Pickle& pickle, const Archive& archive, const std::string& where) {
  if (!is_dict(pickle, pickle.root())) {
    throw checkpoint_error(
        fmt::format("{}: expected a dict of tensors, found {}", where, pickle.describe(pickle.root())),
        "save the model's state_dict() with torch.save");
  }
  const auto& parts = pickle.root().parts;
  if (parts.size() / 2 > kMostTensors) {
    throw checkpoint_error(
        fmt::format("{}: expected at most {} tensors, found {}", where, kMostTensors, parts.size() / 2));
  }
  std::map<std::string_view, Dtype>
      dtypes;  // of storages: a key that is said to be two things is read differently elsewhere
  const auto storage_of = [&](std::string_view key, Dtype dtype) {
    const Dtype before = dtypes.emplace(key, dtype).first->second;
    if (before == dtype) return archive.find(fmt::format("data/{}", key));
    throw checkpoint_error(fmt::format("{}: storage {}: said to hold both {} and {}", where, plain_text(key),
                                       dtype_name(before), dtype_name(dtype)));
  };
  std::vector<StoredTensor> out;
  std::set<std::string_view> names;
  int64_t total = 0;
  for (size_t i = 0; i < parts.size(); i += 2) {
    const std::string_view name = checked_name(pickle, pickle[parts[i]], where);
    const auto& value = pickle[parts[i + 1]];
    if (is_dict(pickle, value)) throw no_tensors(pickle, where, name);
    const std::string who = fmt::format("{}: tensor {}", where, cut_text(name));
    if (!names.insert(name).second) throw checkpoint_error(who + " stands there twice", kReloadHint);
    out.push_back(torch_tensor(pickle, value, std::string(name), who, storage_of));
    const int64_t bytes = out.back().spec.bytes();
    if (bytes > kMostTotal - total)
      throw checkpoint_error(who + ": more bytes in all than a disk can hold", kReloadHint);
    total += bytes;
  }
  return out;
}

}  // namespace

namespace {

Pickle pickle_of(const Archive& archive, const std::string& where) {
  const ZipMember* const pickled = archive.find("data.pkl");
  if (pickled == nullptr) {
    throw checkpoint_error(
        fmt::format("{}: expected a member data.pkl, as torch.save writes it, found a zip file without", where),
        "take the file that torch.save has written; what zip has packed is to be unpacked");
  }
  if (const auto order = archive.text("byteorder"); !order.empty() && order != "little") {
    throw checkpoint_error(
        fmt::format("{}: expected numbers of byte order little, found {}", where, plain_text(order, 20)),
        "load and save it again on a machine of little byte order: x86-64 and ARM are");
  }
  return read_pickle(archive.bytes(*pickled), where + ": data.pkl", torch_names());
}

}  // namespace

std::vector<StoredTensor> parse_torch_file(std::span<const std::byte> file, const std::string& where) {
  check_kind(as_text(file), where);
  const Archive archive(file, where);
  return tensors_of(pickle_of(archive, where), archive, where);
}

Pickle read_torch_pickle(std::span<const std::byte> file, const std::string& where) {
  check_kind(as_text(file), where);
  return pickle_of(Archive(file, where), where);
}

}  // namespace lockstep
