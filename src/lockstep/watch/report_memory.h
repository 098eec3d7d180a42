// The report's section about memory: a stacked bar a device of what was predicted, with what ranks have measured as
// marks and bars beside it, and a table of phases.
#pragma once

#include <string>

#include "lockstep/base/event.h"
#include "lockstep/base/json.h"

namespace lockstep {

/// HTML; "" where nothing was predicted and nothing measured. Either alone makes a picture.
std::string memory_section(const MemoryMeasured& memory);

/// The same from files: "memory" of plan.json, and memory.json. Either may be null.
std::string report_memory_html(const Json& forecast, const Json& measured);

}  // namespace lockstep
