// The threads of a GPU's block on one thread of the host: each runs until it waits for the others, then the next. What a block
// shares may be one thread's static memory; a barrier that is missing shows as what a thread reads before another has written it.
#pragma once

#include <functional>

namespace lockstep::fake_gpu {

/// `play` once for each of so many threads; `turn_of(thread)` before each time that one goes on. `last_first`: those of the
/// highest number first, so that what one order hides the other shows.
void play_together(int threads, bool last_first, const std::function<void(int thread)>& turn_of,
                   const std::function<void()>& play);
/// Of a thread that is being played: until all others wait or have ended. At once where none is.
void wait_for_others();

}  // namespace lockstep::fake_gpu
