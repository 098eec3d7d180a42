#include "lockstep/model/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeader = 100'000'000;  // as the reference implementation

uint64_t header_length(std::span<const std::byte> file, const std::string& where) {
  if (file.size() < kLengthBytes) {
    throw checkpoint_error(
        fmt::format("{}: expected at least {} bytes, found {}: truncated", where, kLengthBytes, file.size()),
        kReloadHint);
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<uint64_t>(file[i]) << (8 * i);
  if (length > kMaxHeader) {
    throw checkpoint_error(
        fmt::format("{}: expected a header of at most {} bytes, the file says {}: not a safetensors file", where,
                    kMaxHeader, length),
        "a pickle or an error page saved under this name? look at its first bytes");
  }
  if (length > file.size() - kLengthBytes) {
    throw checkpoint_error(fmt::format("{}: expected a header of {} bytes, found {} behind its length: truncated",
                                       where, length, file.size() - kLengthBytes),
                           kReloadHint);
  }
  return length;
}

Json parse_header(std::string_view text, const std::string& where) {
  const Json header = parse_json(text, where + " header", {.refuses_twice_named = true});
  if (!header.is_object()) {
    throw checkpoint_error(fmt::format("{}: expected an object as header, found {}", where, header.type_name()));
  }
  return header;
}

Dtype stored_dtype(const std::string& name, const std::string& who) {
  static const std::set<std::string> kQuantised{"F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4"};
  if (!kQuantised.contains(name)) {
    try {
      return dtype_from_safetensors(name);
    } catch (Error& e) {
      e.add_frame(who);
      throw;
    }
  }
  throw checkpoint_error(fmt::format("{}: dtype {} (quantised); expected F32, BF16, F16 or F64", who, name),
                         "dequantise first: load the model with its own tool and save it in bfloat16");
}

Shape stored_shape(const Json& value, const std::string& who) {
  Shape shape;
  int64_t numel = 1;
  for (const auto& size : value) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > static_cast<uint64_t>(kMostElements)) {
      throw checkpoint_error(fmt::format("{}: shape: expected non-negative integers, found {}", who, value.dump()));
    }
    shape.push_back(size.get<int64_t>());
    if (shape.back() != 0 && numel > kMostElements / shape.back()) {
      throw checkpoint_error(fmt::format("{}: shape {}: more elements than a file can hold", who, value.dump()));
    }
    numel *= shape.back();
  }
  return shape;
}

StoredTensor stored_tensor(const std::string& name, const Json& entry, const std::string& where) {
  const std::string who = fmt::format("{}: tensor {}", where, name);
  const auto kind = [&](const char* key, bool ok) {
    if (ok) return;
    throw checkpoint_error(
        fmt::format("{}: expected {{dtype, shape, data_offsets}}, found \"{}\" missing or of another kind", who, key));
  };
  kind("object", entry.is_object());
  kind("dtype", entry.contains("dtype") && entry["dtype"].is_string());
  kind("shape", entry.contains("shape") && entry["shape"].is_array());
  kind("data_offsets", entry.contains("data_offsets") && entry["data_offsets"].is_array());
  const Json& offsets = entry["data_offsets"];
  kind("data_offsets", offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned());
  StoredTensor stored{
      .spec = {name, stored_dtype(entry["dtype"].get<std::string>(), who), stored_shape(entry["shape"], who)},
      .begin = offsets[0].get<size_t>(),
      .end = offsets[1].get<size_t>()};
  const auto bytes = static_cast<size_t>(stored.spec.bytes());
  if (stored.begin > stored.end || stored.end - stored.begin != bytes) {
    throw checkpoint_error(fmt::format("{}: {} needs {} bytes, its data_offsets are [{}, {}]", who,
                                       stored.spec.describe(), bytes, stored.begin, stored.end));
  }
  return stored;
}

}  // namespace

std::vector<StoredTensor> parse_safetensors_header(std::span<const std::byte> file, const std::string& where) {
  const auto length = static_cast<size_t>(header_length(file, where));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  const Json json = parse_header(text, where);
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name != "__metadata__") tensors.push_back(stored_tensor(name, entry, where));
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  const size_t data_begin = kLengthBytes + length;  // what the header counts from
  size_t expected = 0;
  for (auto& stored : tensors) {
    if (stored.begin != expected) {
      throw checkpoint_error(fmt::format("{}: tensor {}: expected to begin at byte {}, begins at {}: {}", where,
                                         stored.spec.name, expected, stored.begin,
                                         stored.begin < expected ? "overlaps the tensor before it" : "a gap"));
    }
    expected = stored.end;
    stored.begin += data_begin;
    stored.end += data_begin;
  }
  const size_t found = file.size() - data_begin;
  if (found != expected) {
    throw checkpoint_error(fmt::format("{}: expected {} bytes, found {}: {}", where, data_begin + expected, file.size(),
                                       found < expected ? "truncated" : "more than the header describes"),
                           kReloadHint);
  }
  return tensors;
}

}  // namespace lockstep
