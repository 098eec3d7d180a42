// The wire format of protocol buffers: fields of a message, one after another, never beyond its bytes.
//
// Example:
//   WireReader reader(bytes, "tokenizer.model");
//   while (const auto field = reader.next()) {
//     if (field->number == 1) pieces.push_back(read_piece(field->bytes));  // fields that are not known are passed over
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

class WireReader {
 public:
  enum class Kind { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  struct Field {
    uint32_t number = 0;
    Kind kind = Kind::kVarint;
    uint64_t value = 0;      // of a number, as its bits
    std::string_view bytes;  // of kBytes: points into the message
  };

  /// `message` must outlive the reader and its fields; `where` names it in errors.
  WireReader(std::string_view message, std::string where);

  /// The next field; nothing at the end. Throws UserError(kCheckpoint) where the bytes are no field.
  std::optional<Field> next();

 private:
  uint64_t varint();
  uint64_t fixed(size_t size);
  [[noreturn]] void refuse(std::string_view why) const;

  std::string_view message_;
  std::string where_;
  size_t at_ = 0;
};

/// What the field holds, where the message's maker must have meant that kind. Throws UserError(kCheckpoint).
std::string_view bytes_of(const WireReader::Field& field, const std::string& where);
uint64_t varint_of(const WireReader::Field& field, const std::string& where);
float float_of(const WireReader::Field& field, const std::string& where);

}  // namespace lockstep
