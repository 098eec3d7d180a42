// A folder that is there whole or not at all.
#pragma once

#include <filesystem>
#include <functional>

namespace lockstep {

/// Calls `write` with a temporary folder beside `output`, which then takes its name; where an empty `output` is there already,
/// with one inside it, whose entries move up, config.json last. Nothing of it is left where `write` throws, or where the program is
/// interrupted and ends by that (base/interrupted.h). Throws UserError(kUsage) where `output` is there and not
/// empty.
void write_new_folder(const std::filesystem::path& output,
                      const std::function<void(const std::filesystem::path& dir)>& write);

}  // namespace lockstep
