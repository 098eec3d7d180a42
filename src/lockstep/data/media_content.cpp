#include "lockstep/data/media_content.h"

#include <algorithm>
#include <array>

namespace lockstep {

bool is_content(std::string_view key) { return key == "bytes" || key == "base64" || key == "data"; }

bool is_data_uri(std::string_view text) {
  constexpr std::string_view kScheme = "data:";
  return text.size() >= kScheme.size() &&
         std::ranges::equal(kScheme, text.substr(0, kScheme.size()), {}, {},
                            [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; });
}

bool looks_like_base64(std::string_view text) {
  constexpr size_t kLongestPath = 512, kShortest = 64;
  constexpr std::array<std::string_view, 7> kBeginnings = {"iVBORw0KGgo", "/9j/4", "/9j/2", "UklGR",
                                                           "ZkxhQ",       "T2dnU", "SUQz"};  // PNG to ID3
  const auto begins = [&](std::string_view one) { return text.starts_with(one); };
  const bool may_be =
      text.size() > kLongestPath || (text.size() >= kShortest && std::ranges::any_of(kBeginnings, begins));
  return may_be && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '/' ||
                  c == '=' || c == '\n' || c == '\r';
         });
}

}  // namespace lockstep
