// A file that gets its name when it is whole: until then it stands beside it under a name of its own, and no reader sees
// half of it. A link stays one, and what it leads to is written; a device or a pipe is written into as it is.
//
// Example:
//   NewFile file("answers.jsonl");
//   for (const auto& row : rows) file.line(row);
//   file.finish();
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

/// A folder for outputs, with those above it. Throws UserError(kData) with the system's reason.
void make_folders(const std::filesystem::path& folder);

class NewFile {
 public:
  /// What a person is told when the disk does not take it.
  struct Refused {
    ExitCode code = ExitCode::kData;
    std::string cure = "is the disk full, or the folder missing or read-only?";
  };

  /// Each function throws UserError as `refused` has it, with the system's reason.
  explicit NewFile(std::filesystem::path path) : NewFile(std::move(path), Refused()) {}
  NewFile(std::filesystem::path path, Refused refused);
  ~NewFile();  // what is not finished goes
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes);
  void line(std::string_view text);
  void finish();

 private:
  void check_stream() const;
  [[noreturn]] void refuse(const std::string& reason) const;

  std::filesystem::path path_, part_;  // part: empty where it has its name, or is no file that could be replaced
  Refused refused_;
  std::ofstream out_;
};

}  // namespace lockstep
