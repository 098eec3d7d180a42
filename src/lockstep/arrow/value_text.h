// Values that Parquet and Arrow hold as the JSON lines of the same data have them.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/json.h"

namespace lockstep::arrow_rows {

std::string base64_of(std::string_view bytes);

/// Text, or base64 where it is not valid UTF-8 or not meant as text.
Json text_or_bytes(std::string_view bytes, bool is_text);

/// A value that is null stands nowhere.
void put(Json& object, const std::string& name, Json value);

}  // namespace lockstep::arrow_rows
