// The kernel of MelSpectra for x86-64-v2 (any x86-64): CMakeLists gives this file its flags.
#include "lockstep/tensor/mel_spectra_lanes.h"

namespace lockstep::kernels {

float mel_frames_v2(const MelTables& tables, const float* samples, int64_t frames, float* out, int64_t stride,
                    double* scratch) {
  return mel_frames<2>(tables, samples, frames, out, stride, scratch);
}

}  // namespace lockstep::kernels
