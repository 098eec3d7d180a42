// Sizes, times and shapes as people read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::string format_bytes(int64_t bytes);                   // "1.50 GiB", "640 B"
std::string format_duration(double seconds);               // "1h 2m 3s", "850ms"
std::string format_count(int64_t count);                   // "31.5M", "960"
std::string format_shape(std::span<const int64_t> shape);  // "[2, 58, 64]"
std::string join(std::span<const std::string> parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);

/// Of what a file or a person wrote, what a message quotes: at most this many bytes of it.
inline constexpr size_t kMaxQuoted = 200;
/// `text`, its middle left out where it is longer than `most` bytes: "abc… (3000 bytes) …xyz". Cuts between characters.
std::string cut_text(std::string_view text, size_t most = kMaxQuoted);
/// Whether all bytes are printable ASCII.
bool is_plain(std::string_view text);
/// The first `most` of bytes that may be anything, fit for a terminal: what is not printable ASCII becomes "\x1b".
std::string plain_text(std::string_view bytes, size_t most = kMaxQuoted);

/// Text of strangers on a terminal: lines and tabs as they are, what a terminal obeys as "\x1b".
std::string shown_text(std::string_view text);

bool starts_with_any(std::string_view text, std::span<const std::string> prefixes);

}  // namespace lockstep
