// A part of a model in a file of its own, beside a run's checkpoints: what LLaVA's second stage is given of the first.
#pragma once

#include <filesystem>

#include "lockstep/zoo/registry.h"

namespace lockstep {

/// The family's part (Family::Elsewhere::alone) of the checkpoint as a file of PyTorch's in `dir`. Throws UserError.
void write_alone(const Family& family, const std::filesystem::path& checkpoint, const std::filesystem::path& dir);

}  // namespace lockstep
