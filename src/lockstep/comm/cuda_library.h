// Opens liblockstep_cuda.so: beside the program, or the shared object, that holds this code, or in its ../lib. Before
// the first CUDA tensor is made, or LibTorch decides that there is no CUDA.
//
// Example:
//   std::string why;
//   if (const CudaApi* cuda = open_cuda_library(why)) memory = cuda->memory(0);
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/comm/cuda_api.h"

namespace lockstep {

class Backend;
class Rendezvous;
struct World;

/// Where the library stands; empty when it was not built or not installed.
std::filesystem::path cuda_library_path();
bool has_cuda_library();

/// The library's table; the library stays open till the process ends, so calling again is cheap. nullptr, with the
/// reason in `why`, when it is not there or cannot run on this machine.
const CudaApi* open_cuda_library(std::string& why);

/// As above; throws UserError(kUsage) with the reason and what to do.
const CudaApi& require_cuda_library();

/// Another table in the library's place, which then is not opened; nullptr: as before. For tests, before the first use.
void use_cuda_library(const CudaApi* instead);

/// So much of a GPU ("cuda:1") for the tensors of this process.
void limit_gpu(const std::string& device, int64_t bytes);

/// NCCL between the ranks' GPUs; `name` is unique for job and group. Collective.
std::unique_ptr<Backend> make_nccl_backend(const World& world, Rendezvous& rendezvous, const std::string& name,
                                           const std::string& device, Clock::duration patience);

}  // namespace lockstep
