// Base64, and the data: URIs that carry it inside a row.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Decodes standard or URL-safe base64; white space is skipped, padding may be missing. Throws UserError(kData) naming
/// `where` and the position of the first character that does not belong.
std::string decode_base64(std::string_view text, const std::string& where);

/// The bytes of "data:[type][;base64],…". Throws UserError(kData) when it has no comma, or is not base64.
std::string decode_data_uri(std::string_view uri, const std::string& where);

std::string encode_base64(std::string_view bytes);

}  // namespace lockstep
