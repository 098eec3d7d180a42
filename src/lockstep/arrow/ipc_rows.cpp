#include "lockstep/arrow/ipc_rows.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/extension_type.h>
#include <arrow/io/memory.h>
#include <arrow/type.h>
#include <nlohmann/json.hpp>

namespace lockstep::arrow_rows {
namespace {

constexpr int64_t kMostMemory = int64_t{2} << 30;  // of batches that are compressed
constexpr int kDeepest = 64;

template <typename Value>
Value or_throw(::arrow::Result<Value> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).ValueUnsafe();
}

/// How deep a value stands in its row, and what is left of the row's room.
struct Place {
  int depth;
  RowRoom* room;
  Place below() const { return {depth + 1, room}; }
};

Json value_at(const ::arrow::Array& array, int64_t i, Place at);

template <typename List>
Json list_at(const ::arrow::Array& array, int64_t i, Place at) {
  const auto& list = static_cast<const List&>(array);
  Json out = Json::array();
  for (int64_t k = list.value_offset(i), end = k + list.value_length(i); k < end; ++k)
    out.push_back(value_at(*list.values(), k, at.below()));
  return out;
}

template <typename Text>
Json text_at(const ::arrow::Array& array, int64_t i, Place at, bool is_text) {
  const std::string_view text = static_cast<const Text&>(array).GetView(i);
  at.room->spend(text.size());
  return text_or_bytes(text, is_text);
}

template <typename Number>
Json number_at(const ::arrow::Array& array, int64_t i) {
  return static_cast<const Number&>(array).Value(i);
}

Json real(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json struct_at(const ::arrow::Array& array, int64_t i, Place at) {
  const auto& of = static_cast<const ::arrow::StructArray&>(array);
  Names out;
  for (int f = 0; f < of.num_fields(); ++f)
    out.put(of.struct_type()->field(f)->name(), value_at(*of.field(f), i, at.below()));
  return out.take();
}

Json map_at(const ::arrow::Array& array, int64_t i, Place at) {
  const auto& map = static_cast<const ::arrow::MapArray&>(array);
  Names out;
  for (int64_t k = map.value_offset(i), end = k + map.value_length(i); k < end; ++k) {
    const Json key = value_at(*map.keys(), k, at.below());
    out.put(key.is_string() ? key.get<std::string>() : key.dump(), value_at(*map.items(), k, at.below()));
  }
  return out.take();
}

Json value_at(const ::arrow::Array& array, int64_t i, Place at) {
  using ::arrow::Type;
  if (at.depth > kDeepest) throw std::runtime_error("columns nested more than 64 deep");
  at.room->spend(0);
  if (array.IsNull(i)) return {};
  switch (array.type_id()) {
    case Type::NA:
      return {};
    case Type::BOOL:
      return number_at<::arrow::BooleanArray>(array, i);
    case Type::INT8:
      return number_at<::arrow::Int8Array>(array, i);
    case Type::INT16:
      return number_at<::arrow::Int16Array>(array, i);
    case Type::INT32:
      return number_at<::arrow::Int32Array>(array, i);
    case Type::INT64:
      return number_at<::arrow::Int64Array>(array, i);
    case Type::UINT8:
      return number_at<::arrow::UInt8Array>(array, i);
    case Type::UINT16:
      return number_at<::arrow::UInt16Array>(array, i);
    case Type::UINT32:
      return number_at<::arrow::UInt32Array>(array, i);
    case Type::UINT64:
      return number_at<::arrow::UInt64Array>(array, i);
    case Type::FLOAT:
      return real(static_cast<const ::arrow::FloatArray&>(array).Value(i));
    case Type::DOUBLE:
      return real(static_cast<const ::arrow::DoubleArray&>(array).Value(i));
    case Type::STRING:
      return text_at<::arrow::StringArray>(array, i, at, true);
    case Type::LARGE_STRING:
      return text_at<::arrow::LargeStringArray>(array, i, at, true);
    case Type::STRING_VIEW:
      return text_at<::arrow::StringViewArray>(array, i, at, true);
    case Type::BINARY:
      return text_at<::arrow::BinaryArray>(array, i, at, false);
    case Type::LARGE_BINARY:
      return text_at<::arrow::LargeBinaryArray>(array, i, at, false);
    case Type::FIXED_SIZE_BINARY:
      return text_at<::arrow::FixedSizeBinaryArray>(array, i, at, false);
    case Type::LIST:
      return list_at<::arrow::ListArray>(array, i, at);
    case Type::LARGE_LIST:
      return list_at<::arrow::LargeListArray>(array, i, at);
    case Type::FIXED_SIZE_LIST:
      return list_at<::arrow::FixedSizeListArray>(array, i, at);
    case Type::STRUCT:
      return struct_at(array, i, at);
    case Type::MAP:
      return map_at(array, i, at);
    case Type::DICTIONARY: {
      const auto& of = static_cast<const ::arrow::DictionaryArray&>(array);
      return value_at(*of.dictionary(), of.GetValueIndex(i), at.below());
    }
    case Type::EXTENSION:
      return value_at(*static_cast<const ::arrow::ExtensionArray&>(array).storage(), i, at.below());
    default:
      throw std::runtime_error("values of type " + array.type()->ToString() + ", which are not read");
  }
}

}  // namespace

IpcRows::IpcRows(std::span<const std::byte> bytes, std::function<void()> forget)
    : pool_(::arrow::default_memory_pool(), kMostMemory), forget_(std::move(forget)) {
  const auto buffer = std::make_shared<::arrow::Buffer>(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                        static_cast<int64_t>(bytes.size()));
  const auto source = std::make_shared<::arrow::io::BufferReader>(buffer);
  ::arrow::ipc::IpcReadOptions options;
  options.memory_pool = &pool_;
  options.use_threads = false;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("ARROW1")) {
    const auto file = or_throw(::arrow::ipc::RecordBatchFileReader::Open(source, options));
    for (int i = 0; i < file->num_record_batches(); ++i) add(or_throw(file->ReadRecordBatch(i)));
    return;
  }
  const auto stream = or_throw(::arrow::ipc::RecordBatchStreamReader::Open(source, options));
  while (auto batch = or_throw(stream->Next())) add(std::move(batch));
}

void IpcRows::add(std::shared_ptr<::arrow::RecordBatch> batch) {
  const auto status = batch->Validate();
  if (!status.ok()) throw std::runtime_error(status.ToString());
  const int64_t before = rows();
  if (batch->num_rows() < 0 || batch->num_rows() > INT64_MAX - before)
    throw std::runtime_error("an impossible number of rows");
  ends_.push_back(before + batch->num_rows());
  batches_.push_back(std::move(batch));
}

Json IpcRows::row(int64_t index) {
  if (index < 0 || index >= rows()) throw std::out_of_range("a row that is not in the file");
  const auto at = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  const auto& batch = *batches_[at];
  constexpr uint32_t kRowsBetween = 64;
  if (++taken_ % kRowsBetween == 0) forget_();
  // The one row is looked at whole: its offsets and texts may be any, and reading what they name must stay inside the file.
  const auto one = batch.Slice(index - (at == 0 ? 0 : ends_[at - 1]), 1);
  const auto status = one->ValidateFull();
  if (!status.ok()) throw std::runtime_error(status.ToString());
  Names out;
  RowRoom room;
  for (int column = 0; column < one->num_columns(); ++column)
    out.put(one->schema()->field(column)->name(), value_at(*one->column(column), 0, {.depth = 0, .room = &room}));
  return out.take();
}

}  // namespace lockstep::arrow_rows
