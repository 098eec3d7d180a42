// A text file that gets its name when it is whole: until then it stands beside it as NAME.part.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

namespace lockstep {

class NewFile {
 public:
  /// Each function throws UserError(kData) when the disk does not take it.
  explicit NewFile(std::filesystem::path path);
  void line(std::string_view text);
  void finish();

 private:
  std::filesystem::path part() const { return path_.string() + ".part"; }
  void check_stream() const;

  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace lockstep
