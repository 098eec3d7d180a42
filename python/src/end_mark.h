// What a process leaves behind that ends without having joined the roll call.
#pragma once

#include <string>

namespace lockstep::python {

/// When this process ends, its exit code stands there, whole or not at all. Not for a process that is forked from here.
void mark_end(const std::string& path);

}  // namespace lockstep::python
