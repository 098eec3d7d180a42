// Which files of a Hugging Face folder hold its weights, by the names that everybody gives them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct WeightFiles {
  std::vector<std::string> names;              // in the folder
  std::filesystem::path index;                 // empty: a single file, without one
  std::map<std::string, std::string> file_of;  // tensor -> file, as the index says
};

/// model.safetensors, or the shards of its index; else pytorch_model.bin, or the shards of its index. Throws
/// UserError(kCheckpoint): nothing of these, an index that is broken or names files that are not there.
WeightFiles find_weight_files(const std::filesystem::path& dir);

/// Whether a file is one of PyTorch's own (torch.save), by its name.
bool is_torch_file(const std::filesystem::path& path);

/// Whether the folder's weights are PyTorch's own files: there are no safetensors of the model, which come first.
bool reads_torch_files(const std::filesystem::path& dir);

}  // namespace lockstep
