#include "lockstep/data/row_fields.h"

#include <nlohmann/json.hpp>

namespace lockstep {

const Json* find_value(const Json& row, const char* name) {
  const auto it = row.find(name);
  return it == row.end() || it->is_null() ? nullptr : &*it;
}

const char* first_name(const Json& row, std::span<const char* const> names) {
  for (const char* name : names) {
    if (find_value(row, name) != nullptr) return name;
  }
  return nullptr;
}

}  // namespace lockstep
