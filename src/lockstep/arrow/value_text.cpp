#include "lockstep/arrow/value_text.h"

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

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

void RowRoom::spend(size_t bytes) {
  const size_t cost = 2 * sizeof(Json) + bytes;
  if (cost > left_) throw std::runtime_error("a row of more than 512 MiB");
  left_ -= cost;
}

Names::Names() : object_(std::make_unique<Json>(Json::object())) {}
Names::~Names() = default;

void Names::set(const std::string& name, Json value) {
  auto& items = static_cast<std::vector<Json::object_t::value_type>&>(object_->get_ref<Json::object_t&>());
  const auto [at, is_new] = places_.emplace(name, items.size());
  if (is_new) {
    items.emplace_back(name, std::move(value));
  } else {
    items[at->second].second = std::move(value);
  }
}

void Names::put(const std::string& name, Json value) {
  if (!value.is_null()) set(name, std::move(value));
}

Json Names::take() { return std::move(*object_); }

}  // namespace lockstep::arrow_rows
