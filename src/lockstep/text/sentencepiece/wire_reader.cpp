#include "lockstep/text/sentencepiece/wire_reader.h"

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void expect(const WireReader::Field& field, WireReader::Kind kind, std::string_view name, const std::string& where) {
  if (field.kind == kind) return;
  throw checkpoint_error(fmt::format("{}: field {}: expected {}, found wire type {}", where, field.number, name,
                                     static_cast<int>(field.kind)),
                         "is it a SentencePiece model?");
}

}  // namespace

WireReader::WireReader(std::string_view message, std::string where) : message_(message), where_(std::move(where)) {}

void WireReader::refuse(std::string_view why) const {
  throw checkpoint_error(fmt::format("{}: byte {} of a message of {}: {}", where_, at_, message_.size(), why),
                         "is the file complete, and a SentencePiece model?");
}

uint64_t WireReader::varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (at_ == message_.size()) refuse("it ends inside a number");
    const auto byte = static_cast<unsigned char>(message_[at_++]);
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  refuse("a number of more than 64 bits");
}

uint64_t WireReader::fixed(size_t size) {
  if (message_.size() - at_ < size) refuse("it ends inside a number");
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint64_t{static_cast<unsigned char>(message_[at_ + i])} << (8 * i);
  at_ += size;
  return value;
}

std::optional<WireReader::Field> WireReader::next() {
  if (at_ == message_.size()) return std::nullopt;
  const uint64_t tag = varint();
  Field field;
  if (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) refuse(fmt::format("expected a field, found the number {}", tag >> 3));
  field.number = static_cast<uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      field.value = varint();
      break;
    case 1:
      field.kind = Kind::kFixed64;
      field.value = fixed(8);
      break;
    case 2: {
      field.kind = Kind::kBytes;
      const uint64_t size = varint();
      if (size > message_.size() - at_)
        refuse(fmt::format("a field of {} bytes, {} are left", size, message_.size() - at_));
      field.bytes = message_.substr(at_, static_cast<size_t>(size));
      at_ += static_cast<size_t>(size);
      break;
    }
    case 5:
      field.kind = Kind::kFixed32;
      field.value = fixed(4);
      break;
    default:
      refuse(fmt::format("wire type {} of field {}", tag & 7, field.number));
  }
  return field;
}

std::string_view bytes_of(const WireReader::Field& field, const std::string& where) {
  expect(field, WireReader::Kind::kBytes, "bytes", where);
  return field.bytes;
}

uint64_t varint_of(const WireReader::Field& field, const std::string& where) {
  expect(field, WireReader::Kind::kVarint, "a whole number", where);
  return field.value;
}

float float_of(const WireReader::Field& field, const std::string& where) {
  expect(field, WireReader::Kind::kFixed32, "a number of 32 bits", where);
  return std::bit_cast<float>(static_cast<uint32_t>(field.value));
}

}  // namespace lockstep
