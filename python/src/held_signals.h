// The signals that would end a rank before the others could be asked.
#pragma once

#include "lockstep/guard/board.h"

namespace lockstep::python {

/// SIGABRT and SIGTERM, where nobody else has a handler, end this process a moment later: Gloo answers a call of another size by
/// std::terminate, and torchrun ends all ranks a moment after the first. The roll call is quicker than these, and ends the
/// process itself when it has found something. `board` lives as long as the process.
void hold_signals(Board& board);

/// What the rank says if it is aborted from here on: torch may answer a leaving Python by abort(), before anybody has said why it leaves.
void say_if_aborted(const LastWords& words);
/// False: it was aborted, and they are said, or there were none.
bool take_back_words();

/// Ends this process as the abort() that it holds up would, if it does: with its core and with what others print then.
void abort_at_last();

}  // namespace lockstep::python
