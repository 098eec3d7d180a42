#include "lockstep/base/new_file.h"

#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// Ranks may be threads of one process, so the process id alone does not make the name unique.
std::filesystem::path part_of(const std::filesystem::path& path) {
  const auto thread = std::hash<std::thread::id>()(std::this_thread::get_id());
  return fmt::format("{}.tmp-{}-{:x}", path.string(), ::getpid(), thread & 0xffffff);
}

/// Where links lead, whether something is there or not.
std::filesystem::path target_of(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  std::error_code unknown;
  for (int links = 0; links < kMostLinks && std::filesystem::is_symlink(path, unknown); ++links) {
    const auto target = std::filesystem::read_symlink(path, unknown);
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

/// /dev/null, a pipe, another program's descriptor: nothing to be replaced by a file.
bool is_written_in_place(const std::filesystem::path& path) {
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

}  // namespace

void make_folders(const std::filesystem::path& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    throw data_error(fmt::format("{}: cannot be made ({})", folder.string(), failure.message()),
                     NewFile::Refused().cure);
  }
}

NewFile::NewFile(std::filesystem::path path, Refused refused) : path_(std::move(path)), refused_(std::move(refused)) {
  if (is_written_in_place(path_)) {
    out_.open(path_, std::ios::binary | std::ios::app);
  } else {
    path_ = target_of(path_);
    part_ = part_of(path_);
    out_.open(part_, std::ios::binary | std::ios::trunc);
  }
  check_stream();
}

NewFile::~NewFile() {
  if (part_.empty()) return;
  out_.close();
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
}

void NewFile::write(std::string_view bytes) {
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  check_stream();
}

void NewFile::line(std::string_view text) {
  out_ << text << '\n';
  check_stream();
}

void NewFile::finish() {
  out_.close();
  check_stream();
  if (part_.empty()) return;
  std::error_code failure;
  std::filesystem::rename(part_, path_, failure);
  if (failure) refuse(failure.message());
  part_.clear();
}

void NewFile::check_stream() const {
  if (!out_.good()) refuse(std::strerror(errno));
}

void NewFile::refuse(const std::string& reason) const {
  throw UserError(refused_.code, fmt::format("{}: cannot be written ({})", path_.string(), reason), refused_.cure);
}

}  // namespace lockstep
