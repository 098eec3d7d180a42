// `--device_log F`: every tensor that crosses from device to device, a JSON object a line, written as it happens.
#pragma once

#include <filesystem>
#include <fstream>

#include "lockstep/base/clock.h"
#include "lockstep/exec/border.h"

namespace lockstep {

class DeviceLog {
 public:
  /// Throws UserError(kUsage) when the file cannot be written.
  explicit DeviceLog(const std::filesystem::path& file);
  void write(const Crossing& crossing);

 private:
  std::ofstream out_;
  Clock::time_point started_ = Clock::now();
};

}  // namespace lockstep
