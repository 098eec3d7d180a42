// The kernel of MelSpectra for x86-64-v4 (AVX-512): CMakeLists gives this file its flags.
#include "lockstep/tensor/mel_spectra_lanes.h"

namespace lockstep::kernels {

float mel_frames_v4(const MelTables& tables, const float* samples, int64_t frames, float* out, int64_t stride,
                    double* scratch) {
  return mel_frames<8>(tables, samples, frames, out, stride, scratch);
}

}  // namespace lockstep::kernels
