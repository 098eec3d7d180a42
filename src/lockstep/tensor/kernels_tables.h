// The tables behind kernels::table(): one pair for each instruction set.
#pragma once

#include "lockstep/tensor/kernels.h"

namespace lockstep::kernels {

const Table<float>& table_v2_f32();
const Table<float>& table_v3_f32();
const Table<float>& table_v4_f32();
const Table<Bf16>& table_v2_bf16();
const Table<Bf16>& table_v3_bf16();
const Table<Bf16>& table_v4_bf16();

}  // namespace lockstep::kernels
