// For tests: a folder of its own for each, gone afterwards.
#pragma once

#include <cstdlib>
#include <filesystem>
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

  std::filesystem::path folder_;
};

}  // namespace lockstep
