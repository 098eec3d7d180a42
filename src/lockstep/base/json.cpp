#include "lockstep/base/json.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/new_file.h"
#include "lockstep/base/text_format.h"

namespace lockstep {

bool JsonBudget::enter() {
  constexpr size_t kBlock = 64;  // of a container's items
  if (++depth_ <= limits_.depth) return spend(kBlock);
  why_ = fmt::format("nested more than {} deep", limits_.depth);
  return false;
}

bool JsonBudget::spend(size_t bytes) {
  spent_ += bytes;
  if (spent_ <= limits_.memory) return true;
  why_ = fmt::format("needs more than {} MiB of memory", limits_.memory >> 20);
  return false;
}

namespace {

/// Receives parse events and builds the value, as long as it stays within the limits. Keys are found by hash: the
/// ordered object looks at all earlier keys for each, which a million keys turn into hours.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(Json& out, JsonFault& fault, const JsonLimits& limits)
      : out_(out), fault_(fault), limits_(limits), budget_(limits) {}

  bool null() override { return place(Json(nullptr)) != nullptr; }
  bool boolean(bool value) override { return place(Json(value)) != nullptr; }
  bool number_integer(int64_t value) override { return place(Json(value)) != nullptr; }
  bool number_unsigned(uint64_t value) override { return place(Json(value)) != nullptr; }
  bool number_float(double value, const std::string& /*text*/) override { return place(Json(value)) != nullptr; }
  bool string(std::string& value) override {
    return afford(value.capacity()) && place(Json(std::move(value))) != nullptr;
  }
  bool binary(Json::binary_t& value) override {
    return afford(value.size()) && place(Json(std::move(value))) != nullptr;
  }
  bool key(std::string& value) override {
    key_ = std::move(value);
    return afford(key_.capacity());
  }
  bool start_object(size_t /*promised*/) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t /*promised*/) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(size_t at, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    // Only slips of syntax are told with their place; 1e999 is a number that no double holds.
    const bool is_syntax = dynamic_cast<const nlohmann::detail::parse_error*>(&error) != nullptr;
    // The parser quotes what it read, which may be the very bytes that are no text: a message must be printable.
    std::string words = error.what();
    std::ranges::replace_if(
        words, [](char c) { return c < ' ' || c > '~'; }, '?');
    return refuse(cut_text(words, kLongestWords), at == 0 ? 0 : at - 1, is_syntax ? Kind::kSyntax : Kind::kLimit);
  }

 private:
  using Kind = JsonFault::Kind;

  static constexpr size_t kLongestWords = 400;  // what is wrong with a surrogate takes 200

  // What a value costs in its parent, which doubles as it grows.
  static constexpr size_t kItem = 2 * sizeof(Json), kEntry = 2 * sizeof(Json::object_t::value_type);
  static constexpr size_t kHashed = 16;  // keys from which on a table pays
  static constexpr size_t kHashedEntry = 96;

  struct Open {
    Json* value;
    std::unordered_map<std::string, size_t> places;  // of the keys of a large object
  };

  bool refuse(std::string why, size_t byte = std::string::npos, Kind kind = Kind::kLimit) {
    fault_ = {byte, std::move(why), kind};
    return false;
  }
  bool afford(size_t bytes) { return budget_.spend(bytes) || refuse(budget_.why()); }
  bool open(Json value) {
    if (!budget_.enter()) return refuse(budget_.why());
    Json* placed = place(std::move(value));
    if (placed != nullptr) open_.push_back({placed, {}});
    return placed != nullptr;
  }
  bool close() {
    open_.pop_back();
    budget_.leave();
    return true;
  }
  Json* place(Json value) {
    if (open_.empty()) return &(out_ = std::move(value));
    Json& parent = *open_.back().value;
    if (!afford(parent.is_array() ? kItem : kEntry)) return nullptr;
    if (!parent.is_array()) return place_named(parent, std::move(value));
    auto& items = parent.get_ref<Json::array_t&>();
    items.push_back(std::move(value));
    return &items.back();
  }
  Json* place_named(Json& parent, Json value) {
    // As a vector: its own operator[] would search.
    std::vector<Json::object_t::value_type>& entries = parent.get_ref<Json::object_t&>();
    if (entries.size() >= kHashed && !afford(kHashedEntry + key_.capacity())) return nullptr;
    if (Json* earlier = find(entries)) {
      if (limits_.refuses_twice_named && open_.size() == 1) {
        refuse(fmt::format("\"{}\" stands there twice", cut_text(key_)), std::string::npos, Kind::kTwice);
        return nullptr;
      }
      return &(*earlier = std::move(value));
    }
    entries.emplace_back(std::move(key_), std::move(value));
    return &entries.back().second;
  }
  Json* find(std::vector<Json::object_t::value_type>& entries) {
    auto& places = open_.back().places;
    if (entries.size() < kHashed) {
      const auto same = [&](const auto& entry) { return entry.first == key_; };
      const auto found = std::find_if(entries.begin(), entries.end(), same);
      return found == entries.end() ? nullptr : &found->second;
    }
    if (places.empty()) {
      for (size_t i = 0; i < entries.size(); ++i) places.emplace(entries[i].first, i);
    }
    const auto [found, fresh] = places.emplace(key_, entries.size());
    return fresh ? nullptr : &entries[found->second].second;
  }

  Json& out_;
  JsonFault& fault_;
  const JsonLimits& limits_;
  std::vector<Open> open_;  // the values being filled; a parent does not grow while its child is open
  std::string key_;
  JsonBudget budget_;
};

/// Bytes that count as they are read: a limit that is passed says nothing of its place.
struct CountedBytes {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at;
  size_t* read;
  reference operator*() const { return *at; }
  CountedBytes& operator++() {
    ++at;
    ++*read;
    return *this;
  }
  bool operator==(const CountedBytes& other) const { return at == other.at; }
  bool operator!=(const CountedBytes& other) const { return at != other.at; }
};

}  // namespace

bool try_parse_json(std::string_view text, Json& out, JsonFault& fault, const JsonLimits& limits) {
  out = Json();
  Builder builder(out, fault, limits);
  size_t read = 0;
  const CountedBytes begin{text.data(), &read}, end{text.data() + text.size(), &read};
  const bool parsed = Json::sax_parse(begin, end, static_cast<nlohmann::json_sax<Json>*>(&builder));
  // The library takes a byte of zero for the end of the text: what stands behind it would be dropped in silence.
  const size_t zero = parsed ? text.find('\0') : std::string_view::npos;
  if (parsed && zero == std::string_view::npos) return true;
  if (parsed) fault = {zero, "a byte of zero, as a file has that was cut by a crash", JsonFault::Kind::kLimit};
  if (fault.byte == std::string::npos) fault.byte = read == 0 ? 0 : read - 1;
  out = Json();
  return false;
}

Json parse_json_or_discard(std::string_view text) {
  // What was read within the usual limits, and stands a few levels deeper in what was made of it, is read again.
  constexpr JsonLimits kAgain{.depth = 320};
  Json out;
  JsonFault fault;
  return try_parse_json(text, out, fault, kAgain) ? out : Json(Json::value_t::discarded);
}

Json parse_cbor_or_discard(std::span<const char> bytes, const JsonLimits& limits) {
  Json out;
  JsonFault fault;
  Builder builder(out, fault, limits);
  const char *begin = bytes.data(), *end = begin + bytes.size();
  const bool whole = Json::sax_parse(begin, end, &builder, Json::input_format_t::cbor, /*strict=*/true);
  return whole ? out : Json(Json::value_t::discarded);
}

Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  Json out;
  JsonFault fault;
  if (try_parse_json(text, out, fault, limits)) return out;
  if (fault.kind == JsonFault::Kind::kTwice)
    throw checkpoint_error(fmt::format("{}: {}", where, fault.why), "keep one of the two");
  const size_t byte = std::min(text.size(), fault.byte);
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
  const size_t start = byte == 0 ? std::string_view::npos : text.rfind('\n', byte - 1);
  const size_t column = start == std::string_view::npos ? byte + 1 : byte - start;
  const std::string place = fmt::format("{}: line {} column {}", where, line, column);
  if (fault.kind == JsonFault::Kind::kSyntax) {
    throw checkpoint_error(fmt::format("{}: not valid JSON ({} bytes read)", place, text.size()),
                           "is the file complete? compare its size with the source");
  }
  throw checkpoint_error(fmt::format("{}: not valid JSON: {}", place, fault.why));
}

std::string read_text(const std::filesystem::path& path, size_t most) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw data_error(fmt::format("{}: cannot be read ({})", path.string(), std::strerror(errno)));
  if (std::filesystem::is_directory(path))
    throw data_error(fmt::format("{}: cannot be read (a folder)", path.string()));
  // Read through a chunk that stays near, into room for all of the file: what grows instead is copied, and touches as much
  // memory again. The size is a hint only: a file may grow, and those of /proc have none.
  std::string out;
  std::error_code unknown;
  const uintmax_t size = std::filesystem::file_size(path, unknown);
  if (!unknown) out.reserve(static_cast<size_t>(std::min<uintmax_t>(size, most)));
  std::vector<char> chunk(size_t{1} << 16);
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || in.gcount() > 0) {
    out.append(chunk.data(), static_cast<size_t>(in.gcount()));
    if (out.size() > most)
      throw data_error(fmt::format("{}: expected at most {} bytes, found more", path.string(), most));
  }
  return out;
}

Json read_json(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    throw checkpoint_error(fmt::format("{}: no such file", path.string()),
                           "is this the folder of a Hugging Face checkpoint?");
  }
  return parse_json(read_text(path), path.string());
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  NewFile file(path);
  file.write(text);
  file.finish();
}

void write_json(const std::filesystem::path& path, const Json& value, int indent) {
  write_text(path, value.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace lockstep
