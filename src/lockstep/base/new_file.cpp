#include "lockstep/base/new_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

NewFile::NewFile(std::filesystem::path path) : path_(std::move(path)), out_(part(), std::ios::binary) {
  check_stream();
}

void NewFile::line(std::string_view text) {
  out_ << text << '\n';
  check_stream();
}

void NewFile::finish() {
  out_.close();
  check_stream();
  std::filesystem::rename(part(), path_);
}

void NewFile::check_stream() const {
  if (out_.good()) return;
  throw data_error(fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(errno)),
                   "make room and give the same command again: no row is computed twice");
}

}  // namespace lockstep
