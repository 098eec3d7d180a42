#include "lockstep/exec/device_log.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {

DeviceLog::DeviceLog(const std::filesystem::path& file) : out_(file) {
  if (!out_) throw usage_error(fmt::format("--device_log {}: the file cannot be written", file.string()));
}

void DeviceLog::write(const Crossing& crossing) {
  const Json line{{"time", seconds_since(started_)},
                  {"tensor", crossing.slot},
                  {"block", crossing.block},
                  {"gradient", crossing.gradient},
                  {"bytes", crossing.bytes},
                  {"from", crossing.from},
                  {"to", crossing.to},
                  {"seconds", crossing.seconds}};
  out_ << line.dump() << std::endl;  // NOLINT(performance-avoid-endl): a job that dies must not take lines with it
}

}  // namespace lockstep
