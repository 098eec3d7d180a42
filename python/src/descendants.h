// What a rank leaves behind when the job is ended: workers of its DataLoader, programs.
#pragma once

namespace lockstep::python {

/// All that this process has started, and what these have.
void kill_descendants();

}  // namespace lockstep::python
