#include "lockstep/watch/tfrecord.h"

#include <bit>

#include "lockstep/watch/crc32c.h"

namespace lockstep {
namespace {

std::string little_endian(uint64_t value, int num_bytes) {
  std::string out;
  for (int i = 0; i < num_bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xFF);
  return out;
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}

// The wire types of protocol buffers: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
std::string varint_field(uint32_t number, uint64_t value) { return varint(number << 3) + varint(value); }
std::string double_field(uint32_t number, double value) {
  return varint(number << 3 | 1) + little_endian(std::bit_cast<uint64_t>(value), 8);
}
std::string bytes_field(uint32_t number, std::string_view value) {
  return varint(number << 3 | 2) + varint(value.size()) + std::string(value);
}
std::string float_field(uint32_t number, float value) {
  return varint(number << 3 | 5) + little_endian(std::bit_cast<uint32_t>(value), 4);
}

std::string event(double wall_time, int64_t step, const std::string& what) {
  return double_field(1, wall_time) + varint_field(2, static_cast<uint64_t>(step)) + what;
}

std::string summary(const std::string& value) { return bytes_field(5, bytes_field(1, value)); }

}  // namespace

std::string frame_record(std::string_view data) {
  const std::string length = little_endian(data.size(), 8);
  return length + little_endian(masked_crc32c(length), 4) + std::string(data) + little_endian(masked_crc32c(data), 4);
}

std::string file_version_event(double wall_time) {
  return double_field(1, wall_time) + bytes_field(3, "brain.Event:2");
}

std::string session_start_event(double wall_time, int64_t step) {
  constexpr uint64_t kStart = 1;
  return event(wall_time, step, bytes_field(7, varint_field(1, kStart)));
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  return event(wall_time, step, summary(bytes_field(1, tag) + float_field(2, value)));
}

std::string text_event(double wall_time, int64_t step, std::string_view tag, std::string_view text) {
  constexpr uint64_t kString = 7, kTensorData = 2;
  const std::string shape = bytes_field(2, varint_field(1, 1));  // one dimension of size 1
  const std::string tensor = varint_field(1, kString) + bytes_field(2, shape) + bytes_field(8, text);
  const std::string metadata = bytes_field(1, bytes_field(1, "text")) + varint_field(4, kTensorData);
  return event(wall_time, step, summary(bytes_field(1, tag) + bytes_field(8, tensor) + bytes_field(9, metadata)));
}

}  // namespace lockstep
