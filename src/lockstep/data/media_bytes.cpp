#include "lockstep/data/media_bytes.h"

#include <filesystem>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/base64.h"

namespace lockstep {

std::string check_media_file(const std::string& path, const std::string& kind, const std::string& where) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  std::string name = fmt::format("{}: {} {}", where, kind, path);
  if (!std::filesystem::exists(status)) {
    throw data_error(fmt::format("{}: no such file", name),
                     "relative paths are looked for in the data file's folder, in --media_dir (ROOT_IMAGE_DIR), and in "
                     "the working directory");
  }
  if (!std::filesystem::is_regular_file(status))
    throw data_error(fmt::format("{}: expected a file, found a folder", name));
  return name;
}

MediaBytes media_bytes(const std::string& reference, const std::string& kind, const std::string& where, size_t most) {
  if (reference.starts_with("data:")) {
    std::string name = fmt::format("{}: {} {}...", where, kind, reference.substr(0, 32));
    return {.bytes = decode_data_uri(reference, name), .name = name};
  }
  std::string name = check_media_file(reference, kind, where);
  try {
    return {.bytes = read_text(reference, most), .name = name};
  } catch (const UserError& error) {  // a disk or network that fails now and then: which row it was must be known
    throw data_error(fmt::format("{}: {}", where, error.message()), error.hint());
  }
}

}  // namespace lockstep
