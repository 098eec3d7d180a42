#include "lockstep/base/json.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/new_file.h"

namespace lockstep {

Json parse_json(std::string_view text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& e) {
    const size_t byte = std::min(text.size(), e.byte == 0 ? size_t{0} : e.byte - 1);
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
    const size_t start = byte == 0 ? std::string_view::npos : text.rfind('\n', byte - 1);
    const size_t column = start == std::string_view::npos ? byte + 1 : byte - start;
    throw checkpoint_error(
        fmt::format("{}: line {} column {}: not valid JSON ({} bytes read)", where, line, column, text.size()),
        "is the file complete? compare its size with the source");
  } catch (const Json::exception& e) {  // a number that no double holds
    throw checkpoint_error(fmt::format("{}: not valid JSON: {}", where, e.what()));
  }
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw data_error(fmt::format("{}: cannot be read ({})", path.string(), std::strerror(errno)));
  if (std::filesystem::is_directory(path))
    throw data_error(fmt::format("{}: cannot be read (a folder)", path.string()));
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

Json read_json(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    throw checkpoint_error(fmt::format("{}: no such file", path.string()),
                           "is this the folder of a Hugging Face checkpoint?");
  }
  return parse_json(read_text(path), path.string());
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  NewFile file(path);
  file.write(text);
  file.finish();
}

void write_json(const std::filesystem::path& path, const Json& value, int indent) {
  write_text(path, value.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace lockstep
