// Tests only: a verb to translate for.
#pragma once

#include <string>

#include "lockstep/dialect/flag_table.h"

namespace lockstep {

/// The flags of a verb that has whatever anything is translated to: those of a stack that mean nothing here are not among them.
inline bool has_meanings(const std::string& name, Stack stack) {
  const FlagRow* row = FlagTable::own().find(stack, "sft", name);
  return row == nullptr || (row->effect != FlagEffect::kNone && row->effect != FlagEffect::kOnly);
}

}  // namespace lockstep
