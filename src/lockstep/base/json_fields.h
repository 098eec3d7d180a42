// One description of a record that is written as JSON and read back: its keys stand once, in the order in which they
// are written. Descriptions stand in the record's .cpp, in namespace lockstep itself (found by argument, so not in an
// anonymous one), behind <nlohmann/json.hpp>. What is only written needs none of this.
//
// Example:
//   static void describe(LogSums& sums, JsonFields& f) {
//     f("loss", sums.loss);
//     f("steps", sums.steps);
//   }
//   Json to_json(const LogSums& sums) { return json_of(sums); }
//   LogSums log_sums_from(const Json& json) { return record_of<LogSums>(json, JsonReading::kStrict, "state.json"); }
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

/// What a key does that is missing, or that holds another kind of value. Keys that nobody describes are ignored.
enum class JsonReading : uint8_t {
  kStrict,       // throws UserError(kCheckpoint) "<where>: …"; without a `where`, Json::exception
  kLenient,      // is passed over: the member keeps its value. A number that is null was not finite: NaN
  kDistrustful,  // throws Error(kCommunication) "<where>: "key" is …". Nothing is rounded, texts are cut at 8 KiB
};

/// Writes a record or reads it, as the description visits its members.
class JsonFields {
 public:
  explicit JsonFields(Json& out) : out_(&out) {}
  /// `where`, a name for errors, and `in` are borrowed.
  JsonFields(const Json& in, JsonReading reading, std::string_view where) : in_(&in), rule_(reading), where_(where) {}
  bool writing() const { return out_ != nullptr; }

  void operator()(const char* key, bool& value);
  void operator()(const char* key, int& value);
  void operator()(const char* key, int64_t& value);
  void operator()(const char* key, uint64_t& value);
  void operator()(const char* key, double& value);
  void operator()(const char* key, std::string& value);
  void operator()(const char* key, Json& value);
  /// A record within: an object, or an array where its description visits items.
  template <typename T>
  requires std::is_class_v<T>
  void operator()(const char* key, T& record) {
    JsonFields inner = inside(key);
    describe(record, inner);
  }
  template <typename T>
  void operator()(const char* key, std::vector<T>& values) {
    list(key, values, SIZE_MAX);
  }
  /// null where there is none.
  template <typename T>
  void operator()(const char* key, std::optional<T>& value) {
    if (!writing() && !is_null(key, std::is_class_v<T>)) value.emplace();
    value ? (*this)(key, *value) : null(key);
  }
  /// A table of names in their order.
  template <typename T>
  void operator()(const char* key, std::vector<std::pair<std::string, T>>& entries) {
    JsonFields inner = inside(key);
    for (auto& name : inner.begin_table(std::is_arithmetic_v<T>)) entries.emplace_back(std::move(name), T{});
    for (auto& [name, value] : entries) inner(name.c_str(), value);
  }
  /// A table of records, each under the name that `name` holds.
  template <typename T>
  void table(const char* key, std::vector<T>& records, std::string T::*name) {
    JsonFields inner = inside(key);
    for (auto& found : inner.begin_table(false)) records.emplace_back().*name = std::move(found);
    for (T& record : records) inner((record.*name).c_str(), record);
  }
  template <typename T>
  void list(const char* key, std::vector<T>& values, size_t most) {
    JsonFields inner = inside(key);
    values.resize(inner.begin_list(values.size(), most));
    for (T& value : values) inner.item(value);
  }
  /// The next item of a record that is written as an array.
  template <typename T>
  void item(T& value) {
    (*this)(nullptr, value);
  }

  /// Not written unless `present`, and need not be there.
  template <typename T>
  void optional(const char* key, T& value, bool present) {
    if (writing() ? present : has(key)) (*this)(key, value);
  }
  /// Written as null unless `present`; what is null stays as it is.
  template <typename T>
  void nullable(const char* key, T& value, bool present) {
    (writing() ? present : !is_null(key)) ? (*this)(key, value) : null(key);
  }
  /// For readers of the file: it follows from the rest.
  template <typename T>
  void derived(const char* key, T value) {
    if (writing()) (*this)(key, value);
  }
  /// An enumeration by `name`; a word that is none of them reads as `last`.
  template <typename Enum>
  void named(const char* key, Enum& value, std::string_view (*name)(Enum), Enum last) {
    std::string word(name(value));
    (*this)(key, word);
    for (value = Enum{}; value != last && name(value) != word;) value = static_cast<Enum>(static_cast<int>(value) + 1);
  }

  bool has(const char* key) const;
  /// What stands there; nullptr while writing, and for a key that is missing and may be.
  const Json* raw(const char* key);
  /// What a wrong value throws when the reading is distrustful.
  [[noreturn]] void refuse(const char* key) const;

 private:
  JsonFields inside(const char* key);
  bool is_null(const char* key, bool of_record = false);
  void null(const char* key);                             // when writing
  std::vector<std::string> begin_table(bool of_numbers);  // names to be read
  size_t begin_list(size_t count, size_t most);           // how many there are
  template <typename T>
  void leaf(const char* key, T& value);
  template <typename T>
  void take(const char* key, const Json& found, T& value) const;
  template <typename Wanted>
  void other_kind() const;                                                     // the list or table is none
  [[noreturn]] void fail(const char* key, const std::exception& error) const;  // in a handler

  Json* out_ = nullptr;
  const Json* in_ = nullptr;
  JsonReading rule_ = JsonReading::kStrict;
  std::string_view where_;
  const char* name_ = "";  // the key that `in_` stands under
  size_t next_ = 0;        // item
};

// Json is complete only where these are used.
template <typename T, typename Value = Json>
Value json_of(T record) {
  Value out;
  JsonFields fields(out);
  describe(record, fields);
  return out;
}

template <typename T>
T record_of(const Json& json, JsonReading reading, std::string_view where = {}) {
  T record{};
  JsonFields fields(json, reading, where);
  describe(record, fields);
  return record;
}

}  // namespace lockstep
