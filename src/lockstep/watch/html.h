// The small HTML vocabulary of the report: escaping, files inlined as data: URIs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

/// `text` so that it stands for itself in HTML text and in quoted attributes. Control characters become U+FFFD.
std::string escape_html(std::string_view text);

std::string base64(std::string_view bytes);

/// "image/png", "image/jpeg", "image/gif", "image/webp" or "image/bmp" by the first bytes; "" for anything else.
std::string_view image_mime(std::string_view bytes);

/// The image as a data: URI; "" when it is missing, larger than `max_bytes`, or no image.
std::string image_data_uri(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace lockstep
