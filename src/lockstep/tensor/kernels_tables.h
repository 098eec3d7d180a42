// The tables behind kernels::table(): one of each element type for each instruction set. And kernels that few processors have.
#pragma once

#include "lockstep/tensor/kernels.h"
#include "lockstep/tensor/kernels_pairs.h"

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

const PairTable& pair_table_v4();

}  // namespace lockstep::kernels
