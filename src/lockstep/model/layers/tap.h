// Named intermediates, for oracles and curious people.
#pragma once

#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

inline void tap(const Context& context, const std::string& name, const Tensor& value) {
  if (context.tap) context.tap(name, value);
}

}  // namespace lockstep
