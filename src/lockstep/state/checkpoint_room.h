// A disk that is full while a checkpoint is written: what makes room, in numbers and flags.
#pragma once

#include <filesystem>
#include <functional>

#include "lockstep/state/checkpoint.h"

namespace lockstep {

/// Runs `write`, which writes under `temporary`. Where the disk takes no more, its UserError gets a hint made from the
/// checkpoints that are there.
void say_what_makes_room(const SaveOptions& options, const std::filesystem::path& temporary,
                         const std::function<void()>& write);

/// `whole`: checkpoints that are there; `bytes`: what the newest of them takes (0: none is known); `found_free`: before
/// anything of this one was written.
std::string room_hint(const SaveOptions& options, int64_t whole, int64_t bytes, int64_t found_free);

}  // namespace lockstep
