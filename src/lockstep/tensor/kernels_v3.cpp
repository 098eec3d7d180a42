// The row kernels for x86-64-v3 (AVX2, FMA): CMakeLists gives this file its flags.
#include "lockstep/tensor/float16_f16c.h"
#include "lockstep/tensor/kernels_attention.h"
#include "lockstep/tensor/kernels_tables.h"

namespace lockstep::kernels {

const Table<float>& table_v3_f32() {
  static constexpr Table<float> kTable = make_table<float, 8, 8>();
  return kTable;
}

const Table<Bf16>& table_v3_bf16() {
  static constexpr Table<Bf16> kTable = make_table<Bf16, 8, 8>();
  return kTable;
}

const Table<F16>& table_v3_f16() {
  static constexpr Table<F16> kTable = make_table<F16, 8, 8>();
  return kTable;
}

}  // namespace lockstep::kernels
