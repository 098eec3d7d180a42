// JSON from files, rows and other processes, with errors that name file, line and column. Key order is kept, so that
// configs round-trip.
//
// Everything that Lockstep parses comes through here: what strangers wrote may be nested a hundred thousand deep, which
// the library's own parser builds and then cannot destroy, or may be many times larger in memory than on disk.
//
// Include <nlohmann/json.hpp> in the .cpp that touches values; this header costs little to include.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace lockstep {

using Json = nlohmann::ordered_json;

/// What one text may cost. The defaults are far above every real checkpoint and row, and far below what hurts.
struct JsonLimits {
  size_t depth = 256;                 // code that walks a value recurses; real files stay under 20
  size_t memory = size_t{512} << 20;  // of the value: a text of "[],[],…" grows thirtyfold
  bool refuses_twice_named = false;   // a key that stands twice in the outermost object is a fault
};

/// Counts what a text costs while it is read. For readers that keep part of a text in tables of their own.
class JsonBudget {
 public:
  explicit JsonBudget(const JsonLimits& limits) : limits_(limits) {}
  /// False, with `why()`, when a list or object may not begin, or `bytes` more may not be kept.
  bool enter();
  void leave() { --depth_; }
  bool spend(size_t bytes);
  const std::string& why() const { return why_; }

 private:
  JsonLimits limits_;
  size_t depth_ = 0, spent_ = 0;
  std::string why_;
};

/// Why a text is no JSON value, and at which byte of it (from 0).
struct JsonFault {
  size_t byte = 0;
  std::string why;  // "nested more than 256 deep"; for a slip of syntax the library's words
  enum class Kind { kSyntax, kTwice, kLimit } kind = Kind::kLimit;
};

/// False, with the fault and nothing in `out`, when `text` is no JSON or passes the limits.
bool try_parse_json(std::string_view text, Json& out, JsonFault& fault, const JsonLimits& limits = {});

/// Discarded (`is_discarded()`) when `text` is no JSON or passes the limits.
Json parse_json_or_discard(std::string_view text);

/// As parse_json_or_discard, for CBOR that another process sent.
Json parse_cbor_or_discard(std::span<const char> bytes, const JsonLimits& limits);

/// Parses a whole text. `where` names it in errors ("config.json"). Throws UserError(kCheckpoint) with line and column.
Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

/// Reads and parses a file. Throws UserError(kCheckpoint) naming the path when it is missing or broken.
Json read_json(const std::filesystem::path& path);

/// Writes to a temporary name beside `path` and renames, so that no reader sees half a file.
void write_json(const std::filesystem::path& path, const Json& value, int indent = 2);

/// What read_text takes at most: above every tokenizer and index, and a sparse file of a terabyte is neither.
inline constexpr size_t kMaxTextFile = size_t{1} << 30;

/// The whole file as bytes. Throws UserError(kData), also when it is larger than `most`.
std::string read_text(const std::filesystem::path& path, size_t most = kMaxTextFile);

/// As write_json, for text.
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace lockstep
