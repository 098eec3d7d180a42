// What tests of families share: recorded folders, what a config or a row is refused with, clips of sound.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/encode_wav.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {

/// The family's recorded folder of odd sizes: checkpoint/, media/.
inline std::filesystem::path odd_folder(const std::string& family) {
  return std::filesystem::path(LOCKSTEP_FIXTURES) / "oracle" / "odd" / family;
}
inline Json odd_config(const std::string& family) {
  return read_json(odd_folder(family) / "checkpoint" / "config.json");
}

inline Model built(const Json& json) {
  const HfConfig config(json, "config.json");
  return family_of(config).build(config);
}

/// What a person is told, hint and all; "" when nothing is refused.
inline std::string refusal_of(const std::function<void()>& work, ExitCode code = ExitCode::kCheckpoint) {
  try {
    work();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "";
}
inline std::string refusal_of_config(const Json& json) {
  return refusal_of([&] { (void)built(json); });
}

/// A saw-tooth at 16 kHz; its file.
inline std::string write_clip(const std::string& name, int64_t samples) {
  std::string bytes;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t value = i * 37 % 2000;
    bytes += {static_cast<char>(value & 0xFF), static_cast<char>(value >> 8)};
  }
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << encode_wav(bytes, 16000);
  return path;
}

}  // namespace lockstep
