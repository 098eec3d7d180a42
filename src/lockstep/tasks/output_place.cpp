#include "lockstep/tasks/output_place.h"

#include <system_error>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/doctor/machine_facts.h"

namespace lockstep {
namespace fs = std::filesystem;

void require_folder_place(const std::string& flag, const fs::path& folder) {
  const DiskFacts facts = disk_facts(folder.string(), {});
  if (facts.error.empty()) return;
  throw usage_error(fmt::format("{} {}: {}", flag, folder.string(), facts.error), "name a folder that can be written");
}

void require_disk(const std::string& flag, const fs::path& folder, int64_t bytes, const std::string& what) {
  const DiskFacts facts = disk_facts(folder.string(), {});
  if (facts.free_bytes >= bytes) return;
  throw usage_error(fmt::format("{}: {} free for {}, {} need {}", flag, format_bytes(facts.free_bytes), folder.string(),
                                what, format_bytes(bytes)),
                    fmt::format("free {}, or name another disk; --force true goes on all the same",
                                format_bytes(bytes - facts.free_bytes)));
}

void require_file_kind(const std::string& flag, const fs::path& file) {
  std::error_code unknown;
  const fs::file_status status = fs::status(file, unknown);
  if (fs::is_directory(status)) {
    throw usage_error(fmt::format("{} {}: expected the name of a file, found a folder", flag, file.string()),
                      fmt::format("{} {}", flag, (file / "answers.jsonl").string()));
  }
  if (!fs::exists(status) || fs::is_regular_file(status)) return;
  throw usage_error(fmt::format("{} {}: expected the name of a file, found {}", flag, file.string(),
                                fs::is_fifo(status)     ? "a pipe"
                                : fs::is_socket(status) ? "a socket"
                                                        : "a device"),
                    "name a file: it is written beside its place, and takes it when it is whole");
}

void require_file_place(const std::string& flag, const fs::path& file) {
  require_file_kind(flag, file);
  std::error_code unknown;
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!fs::exists(folder, unknown) && !unknown) {
    throw usage_error(fmt::format("{} {}: there is no folder {}", flag, file.string(), folder.string()),
                      "make it first, or name another");
  }
  require_folder_place(flag, folder);
}

void require_other_file(const std::string& flag, const fs::path& file, const std::vector<std::string>& sources) {
  for (const auto& source : sources) {
    std::error_code failure;  // what is not there is another
    for (const auto& path : {fs::path(source), fs::path(source.substr(0, source.rfind('#')))}) {
      if (!fs::equivalent(file, path, failure)) continue;
      throw usage_error(
          fmt::format("{} {}: that is the data set itself, which would be written over", flag, file.string()),
          fmt::format("{} {}", flag, (file.parent_path() / ("answers-" + file.filename().string())).string()));
    }
  }
}

}  // namespace lockstep
