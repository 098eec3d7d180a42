// Values that Parquet and Arrow hold as the JSON lines of the same data have them.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/json.h"

namespace lockstep::arrow_rows {

/// Text, or a data: URI of what is not meant as text, so that a small picture is not taken for the name of a file.
Json text_or_bytes(std::string_view bytes, bool is_text);

/// A value that is null stands nowhere.
void put(Json& object, const std::string& name, Json value);

}  // namespace lockstep::arrow_rows
