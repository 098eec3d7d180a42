// For tests: a folder of its own for each, gone afterwards; and programs in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace lockstep {

class InTestFolder : public testing::Test {
 protected:
  InTestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep_test_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~InTestFolder() override { std::filesystem::remove_all(folder_); }

  /// Path of a file of that text, which may be run.
  std::string script(const std::string& name, const std::string& body, bool executable = true) const {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path) << body;
    if (executable) std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }
  std::string shell_script(const std::string& name, const std::string& body) const {
    return script(name, "#!/bin/sh\n" + body + "\n");
  }

  std::filesystem::path folder_;
};

}  // namespace lockstep
