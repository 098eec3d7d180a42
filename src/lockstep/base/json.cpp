#include "lockstep/base/json.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"

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
  }
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path)) {
    throw data_error(fmt::format("{}: cannot be read ({})", path.string(), std::strerror(errno)));
  }
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

Json read_json(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw checkpoint_error(fmt::format("{}: no such file", path.string()),
                           "is this the folder of a Hugging Face checkpoint?");
  }
  return parse_json(read_text(path), path.string());
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  const auto temporary = path.string() + fmt::format(".tmp-{}", getpid());
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.flush();
    if (!out) {
      const std::string why = std::strerror(errno);
      out.close();
      std::filesystem::remove(temporary);
      throw UserError(ExitCode::kCheckpoint, fmt::format("{}: cannot be written ({})", path.string(), why),
                      "is the disk full, or the folder read-only?");
    }
  }
  std::filesystem::rename(temporary, path);
}

void write_json(const std::filesystem::path& path, const Json& value, int indent) {
  write_text(path, value.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace lockstep
