// One function a family; registry.cpp lists them.
#pragma once

#include "lockstep/zoo/registry.h"

namespace lockstep {

Family qwen2_family();
Family qwen3_family();
Family llama_family();
Family mistral_family();
Family llava_family();
Family qwen2_5_vl_family();
Family internvl_family();
Family minicpm_v_2_6_family();
Family minicpm_o_2_6_family();
Family omnilmm_family();
Family qwen2_5_omni_family();

}  // namespace lockstep
