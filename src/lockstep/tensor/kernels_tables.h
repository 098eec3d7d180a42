// The tables behind kernels::table(): one of each element type for each instruction set. And kernels that few processors have.
#pragma once

#include "lockstep/tensor/kernels.h"

namespace lockstep::kernels {

const Table<float>& table_v2_f32();
const Table<float>& table_v3_f32();
const Table<float>& table_v4_f32();
const Table<Bf16>& table_v2_bf16();
const Table<Bf16>& table_v3_bf16();
const Table<Bf16>& table_v4_bf16();
const Table<F16>& table_v2_f16();
const Table<F16>& table_v3_f16();
const Table<F16>& table_v4_f16();

void multiply_pairs_v4(const PairPanel& in);

}  // namespace lockstep::kernels
