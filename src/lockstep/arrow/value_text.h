// Values that Parquet and Arrow hold as the JSON lines of the same data have them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lockstep/base/json.h"

namespace lockstep::arrow_rows {

/// Text, or a data: URI of what is not meant as text, so that a small picture is not taken for the name of a file.
Json text_or_bytes(std::string_view bytes, bool is_text);

/// What the values of one row may take. A file of a kilobyte may stand for gigabytes: by a dictionary of one long text, by
/// nulls, which have no bytes.
class RowRoom {
 public:
  /// A value, and the bytes of its text. Throws std::runtime_error.
  void spend(size_t bytes);

 private:
  size_t left_ = size_t{512} << 20;  // as JsonLimits has it
};

/// An object under way. That of JSON looks at all earlier names for each: a map of a row may have a million.
class Names {
 public:
  Names();
  ~Names();
  /// The last of a name counts.
  void set(const std::string& name, Json value);
  /// A value that is null stands nowhere.
  void put(const std::string& name, Json value);
  Json take();

 private:
  std::unique_ptr<Json> object_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace lockstep::arrow_rows
