#include "lockstep/arrow/value_text.h"

#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

namespace lockstep::arrow_rows {

namespace {

std::string base64_of(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = (group << 8) | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[(group >> (18 - 6 * k)) & 63U];
  }
  return out;
}

}  // namespace

Json text_or_bytes(std::string_view bytes, bool is_text) {
  return is_text ? Json(std::string(bytes)) : Json("data:;base64," + base64_of(bytes));
}

void put(Json& object, const std::string& name, Json value) {
  if (!value.is_null()) object[name] = std::move(value);
}

}  // namespace lockstep::arrow_rows
