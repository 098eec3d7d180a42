// The row kernels for x86-64-v2 (any x86-64): CMakeLists gives this file its flags.
#include "lockstep/tensor/float16_bits.h"
#include "lockstep/tensor/kernels_attention.h"
#include "lockstep/tensor/kernels_tables.h"

namespace lockstep::kernels {

const Table<float>& table_v2_f32() {
  static constexpr Table<float> kTable = make_table<float, 4, 8>();
  return kTable;
}

const Table<Bf16>& table_v2_bf16() {
  static constexpr Table<Bf16> kTable = make_table<Bf16, 4, 8>();
  return kTable;
}

const Table<F16>& table_v2_f16() {
  static constexpr Table<F16> kTable = make_table<F16, 4, 8>();
  return kTable;
}

}  // namespace lockstep::kernels
