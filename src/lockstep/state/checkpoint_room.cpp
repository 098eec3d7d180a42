#include "lockstep/state/checkpoint_room.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/state/checkpoint_names.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

int64_t bytes_under(const fs::path& dir) {
  int64_t total = 0;
  std::error_code ignored;
  for (auto at = fs::recursive_directory_iterator(dir, ignored); at != fs::end(at); at.increment(ignored)) {
    if (at->is_regular_file(ignored)) total += static_cast<int64_t>(at->file_size(ignored));
  }
  return total;
}

bool is_full(const std::string& message) {
  return message.find(std::strerror(ENOSPC)) != std::string::npos ||
         message.find(std::strerror(EDQUOT)) != std::string::npos;
}

}  // namespace

std::string room_hint(const SaveOptions& options, int64_t whole, int64_t bytes, int64_t found_free) {
  const std::string then = "the same command with --resume_from_checkpoint auto goes on";
  const std::string dir = options.output_dir.string();
  // While one is written, all that are kept are there besides.
  const int64_t fit = whole - 1;
  if (fit >= 1 && (options.save_total_limit <= 0 || options.save_total_limit > fit)) {
    return fmt::format("keep fewer checkpoints in {}, --save_total_limit {}, or free {} there; {}", dir, fit,
                       format_bytes(std::max<int64_t>(bytes - found_free, 1)), then);
  }
  const std::string free = bytes > found_free
                               ? fmt::format("free {} more on the disk of {}", format_bytes(bytes - found_free), dir)
                               : fmt::format("{} had {} free: make room there", dir, format_bytes(found_free));
  if (options.save_only_model) return fmt::format("{}, or name another --output_dir; {}", free, then);
  return fmt::format("leave out what only this run can use, --save_only_model true, or {}; {}", free, then);
}

void say_what_makes_room(const SaveOptions& options, const fs::path& temporary, const std::function<void()>& write) {
  try {
    write();
  } catch (const UserError& error) {
    if (!is_full(error.message())) throw;
    const auto whole = checkpoints_in(options.output_dir);
    std::error_code failed;
    const auto space = fs::space(options.output_dir, failed);
    const int64_t free = (failed ? 0 : static_cast<int64_t>(space.available)) + bytes_under(temporary);
    UserError told(error.code(), error.message(),
                   room_hint(options, static_cast<int64_t>(whole.size()),
                             whole.empty() ? 0 : bytes_under(whole.front().second), free));
    for (const auto& frame : error.frames()) told.add_frame(frame);
    throw told;
  }
}

}  // namespace lockstep
