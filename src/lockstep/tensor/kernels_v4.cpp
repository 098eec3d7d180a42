// The row kernels for x86-64-v4 (AVX-512): CMakeLists gives this file its flags.
#include "lockstep/tensor/float16_f16c.h"
#include "lockstep/tensor/kernels_attention.h"
#include "lockstep/tensor/kernels_tables.h"

namespace lockstep::kernels {

const Table<float>& table_v4_f32() {
  static constexpr Table<float> kTable = make_table<float, 16, 16>();
  return kTable;
}

const Table<Bf16>& table_v4_bf16() {
  static constexpr Table<Bf16> kTable = make_table<Bf16, 16, 16>();
  return kTable;
}

const Table<F16>& table_v4_f16() {
  static constexpr Table<F16> kTable = make_table<F16, 16, 16>();
  return kTable;
}

}  // namespace lockstep::kernels
