// One function a family; registry.cpp lists them.
#pragma once

#include "lockstep/zoo/registry.h"

namespace lockstep {

Family qwen2_family();
Family llama_family();
Family llava_family();
Family qwen2_5_vl_family();
Family internvl_family();

}  // namespace lockstep
