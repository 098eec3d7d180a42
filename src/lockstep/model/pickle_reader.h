// A pickle as a description: what it says stands in a table of nodes. Nothing is imported, made or called.
//
// A pickle is a program for a stack machine, whose names and calls Python would look up and run. Here a name becomes a
// node that says the name, a call one that says what would be called and with what, and names that the caller does not
// expect are refused. Nothing recurses, so that a pickle may be nested as deep as its bounds allow.
//
// Example:
//   const Pickle pickle = read_pickle(bytes, "m.bin: data.pkl", std::array{"collections.OrderedDict"sv});
//   for (const Pickle::Id id : pickle.root().parts) use(pickle[id]);
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/model/pickle.h"

namespace lockstep {

/// `names`: those that are expected, as "module.name". The result borrows from `bytes` and `names`. Throws
/// UserError(kCheckpoint) naming `where` and the byte: a name that is not expected, an operation that this does not read
/// (protocols 2 to 5 without those that make objects), truncated, more than 64 MiB, 512 MiB of nodes or a million values
/// on the stack. Source: Python's Lib/pickletools.py, the table of opcodes.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where, std::span<const std::string_view> names);

}  // namespace lockstep
