// What stands beside a model's weights: config, tokenizer, processor, chat template, code of its own, assets in
// subfolders. It travels with every checkpoint, byte for byte; nothing of it is run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/base/mapped_file.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

/// Held from the start of a run: the folder may be a checkpoint that is pruned before the next save. Small files are held
/// in memory, so that whoever edits one does not edit a run; large ones, and what is more than 256 MiB of them, are mapped.
struct SideFile {
  std::string name;  // relative to the folder
  std::variant<std::string, MappedFile> bytes;
};
using SideFiles = std::vector<SideFile>;

/// By name. Leaves out weights of any kind, what trainers keep to go on from, hidden files, what a run writes itself, and
/// subfolders that are models or checkpoints of their own. Throws UserError(kCheckpoint), also for more than 10,000 files.
SideFiles read_side_files(const std::filesystem::path& dir);

int64_t side_file_bytes(const SideFiles& files);
/// "" up to 1 GiB; of more, which may be a data set that lies in the model's folder, what to know before it is copied again and
/// again: how much, how many, and the file or subfolder with the most.
std::string large_side_files(const SideFiles& files);

/// Writes side files; config.json gets the dtype of the weights, under the key that it uses, where one is given.
void write_side_files(const SideFiles& files, std::optional<Dtype> dtype, const std::filesystem::path& dir);

}  // namespace lockstep
