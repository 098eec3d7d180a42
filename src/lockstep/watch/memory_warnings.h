// What people should be told of a run's memory, once each: ranks that differ, and more than was predicted.
//
// Example:
//   MemoryWarnings warnings;
//   for (const auto& text : warnings.add(measured)) events.emit(Notice{text});
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/event.h"

namespace lockstep {

class MemoryWarnings {
 public:
  /// Texts for people. Only differences of more than 5 % and 16 MiB count; ranks are compared when each of them has
  /// been measured five times, or for the last time, since their batches differ at first by chance.
  std::vector<std::string> add(const MemoryMeasured& memory);

 private:
  std::string uneven(const MemoryMeasured& memory);
  std::string above_forecast(const MemoryMeasured& memory);

  int times_ = 0;
  bool told_uneven_ = false, told_above_ = false;
};

}  // namespace lockstep
