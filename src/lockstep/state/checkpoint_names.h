// How a checkpoint takes its name and loses it. Whatever is killed in between, each whole one is found again; what a disk
// does not let go of (files that NFS keeps for whoever has them open, another user's folder) is told, and ends no run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// checkpoint-N folders in `dir`, whole or not, newest first.
std::vector<std::pair<int64_t, std::filesystem::path>> checkpoints_in(const std::filesystem::path& dir);

/// N of "checkpoint-N"; nullopt for any other name.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& path);

/// What a checkpoint is called while it is no checkpoint: a name that nothing has, as what could not be removed may have one.
std::filesystem::path temporary_name(const std::filesystem::path& checkpoint, const std::string& suffix);

/// The finished folder takes its name, also where an older checkpoint of the same step stands, which goes. Returns "", or
/// why that one is still there. Throws UserError(kData): the finished folder then stays, and so does the older one.
std::string publish_checkpoint(const std::filesystem::path& temporary, const std::filesystem::path& checkpoint);

/// publish_checkpoint() for a disk that cannot exchange two names; returns where the older one stands.
std::filesystem::path take_name_in_turn(const std::filesystem::path& temporary,
                                        const std::filesystem::path& checkpoint);

/// Takes its name away first: a kill in between leaves no damaged folder that is called a checkpoint. Returns "", or what
/// could not be removed and why: where it still has its name, nothing of it was.
std::string remove_checkpoint(const std::filesystem::path& checkpoint);

/// Folders that were finished when their save was killed, while no checkpoint of their step is there; the newer first.
std::vector<std::filesystem::path> unnamed_checkpoints(const std::filesystem::path& dir);

/// Gives those their names. A run folder belongs to one run at a time: not where another one may be saving.
void name_checkpoints(const std::filesystem::path& dir);

/// What earlier, killed saves left behind, but for what name_checkpoints() knows. Returns what could not be removed.
std::vector<std::string> remove_leftovers(const std::filesystem::path& dir);

}  // namespace lockstep
