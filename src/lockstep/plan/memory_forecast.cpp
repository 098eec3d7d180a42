#include "lockstep/plan/memory_forecast.h"

#include <algorithm>

namespace lockstep {

int64_t MemoryForecast::peak() const {
  int64_t most = 0;
  for (const auto& device : devices) most = std::max(most, device.peak());
  return most;
}

}  // namespace lockstep
