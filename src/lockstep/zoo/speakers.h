// The voices of a model that talks: spk_dict.pt of Qwen2.5-Omni.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace lockstep {

/// By name, the token of text that each begins with: {"Chelsie": {"bos_token": 151872, "cond": …, "ref_mel": …}}; the tensors, which a vocoder
/// reads, are not looked at. Throws UserError(kCheckpoint) naming the file, what was expected and found.
std::map<std::string, int32_t> read_speakers(const std::filesystem::path& file);

}  // namespace lockstep
