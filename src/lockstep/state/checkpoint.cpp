#include "lockstep/state/checkpoint.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/together.h"
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/state/checkpoint_names.h"
#include "lockstep/state/checkpoint_optimizer.h"
#include "lockstep/state/checkpoint_room.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

/// A damaged one takes no whole one's place, whatever its step: it stays as long as one older than it does.
/// Returns what could not be removed.
std::vector<std::string> prune(const SaveOptions& options, const fs::path& newest, const fs::path& best) {
  std::vector<std::string> left;
  if (options.save_total_limit <= 0) return left;
  auto all = checkpoints_in(options.output_dir);
  // A best one that stands in another folder, where the run came from, takes no place here.
  const auto stay =
      std::erase_if(all, [&](const auto& entry) { return entry.second == newest || entry.second == best; });
  auto places = std::max<int64_t>(0, options.save_total_limit - static_cast<int64_t>(stay));
  for (const auto& [step, path] : all) {
    if (places == 0) {
      if (std::string told = remove_checkpoint(path); !told.empty()) left.push_back(std::move(told));
    } else if (std::ranges::find(options.damaged, path) == options.damaged.end() && has_all_bytes(path)) {
      --places;
    }
  }
  return left;
}

/// The hashes of all ranks' files: each rank hashes its own optimizer shard, rank 0 all the rest.
std::map<std::string, ManifestEntry> gather_entries(const CheckpointContents& contents, const fs::path& dir,
                                                    bool optimizer, Communicator& control) {
  Json mine = Json::object();
  const auto add = [&](const std::string& name, const ManifestEntry& entry) {
    mine[name] = {entry.bytes, entry.xxh64};
  };
  together(control, "hashing the checkpoint", [&] {
    const std::string own = optimizer_file_name(contents.store.rank(), control.size());
    if (optimizer) add(own, describe_file(dir / own));
    if (control.rank() != 0) return;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
      const std::string name = entry.path().lexically_relative(dir).string();
      if (entry.is_regular_file() && !name.starts_with("optimizer-0")) add(name, describe_file(entry.path()));
    }
  });
  std::map<std::string, ManifestEntry> all;
  for (const auto& text : control.all_gather_bytes(mine.dump(), "checkpoint hashes")) {
    const Json table = parse_json(text, "checkpoint hashes");
    for (const auto& [name, entry] : table.items()) {
      all[name] = {entry[0].get<int64_t>(), entry[1].get<std::string>()};
    }
  }
  return all;
}

/// All but the weights: this rank's part of the optimizer, and on the first rank the files beside it.
void write_state(const CheckpointContents& contents, const SaveOptions& options, const fs::path& dir,
                 const TrainerState& state, const Communicator& control) {
  if (!options.save_only_model) write_optimizer_shard(contents.store, control.size(), dir);
  if (control.rank() != 0) return;
  write_side_files(contents.side_files, contents.store.plan().options.compute, dir);
  write_text(dir / "args.json", contents.args_json);
  write_json(dir / "trainer_state.json", to_json(state));
}

void write_everything(const CheckpointContents& contents, const SaveOptions& options, const fs::path& dir,
                      const TrainerState& state, Communicator& data, Communicator& control) {
  const Dtype dtype = contents.store.plan().options.compute;
  together(control, "writing weights", [&] {
    say_what_makes_room(options, dir, [&] {
      if (contents.adapters != nullptr) {
        write_adapter(*contents.adapters, contents.store, data, dir);
      } else {
        write_weights(contents.source, contents.store, data, dtype, options.max_shard_bytes, dir);
      }
    });
  });
  together(control, "writing optimizer state",
           [&] { say_what_makes_room(options, dir, [&] { write_state(contents, options, dir, state, control); }); });
}

}  // namespace

CheckpointSaved save_checkpoint(const CheckpointContents& contents, const SaveOptions& options, Communicator& data,
                                Communicator& control) {
  const auto begun = Clock::now();
  TrainerState state = contents.state;
  const fs::path final_path = options.output_dir / ("checkpoint-" + std::to_string(state.global_step));
  state.saved_as(final_path.string());
  const std::string own = temporary_name(final_path, std::to_string(::getpid())).string();
  const fs::path temporary = control.all_gather_bytes(own, "checkpoint name").at(0);
  CheckpointSaved saved{.step = state.global_step, .path = final_path.string()};
  std::map<std::string, ManifestEntry> entries;
  try {
    together(control, "making the checkpoint folder", [&] {
      if (control.rank() != 0) return;
      make_folders(options.output_dir);
      saved.left = remove_leftovers(options.output_dir);
      make_folders(temporary);
    });
    write_everything(contents, options, temporary, state, data, control);
    entries = gather_entries(contents, temporary, !options.save_only_model, control);
    together(control, "sealing the checkpoint", [&] {
      if (control.rank() == 0) seal_folder(temporary, state.global_step, entries);
    });
  } catch (const CollectiveError&) {
    throw;  // another rank is gone: the next save removes what is left
  } catch (Error& error) {
    std::error_code ignored;
    if (control.rank() == 0) fs::remove_all(temporary, ignored);
    error.add_frame(fmt::format("saving {}", final_path.string()));
    throw;
  }
  together(control, "naming the checkpoint", [&] {
    if (control.rank() != 0) return;
    if (std::string told = publish_checkpoint(temporary, final_path); !told.empty()) saved.left.push_back(told);
  });
  together(control, "removing old checkpoints", [&] {
    if (control.rank() == 0)
      std::ranges::move(prune(options, final_path, state.best_model_checkpoint), std::back_inserter(saved.left));
  });
  saved.seconds = seconds_since(begun);
  for (const auto& [name, entry] : entries) saved.bytes += entry.bytes;
  return saved;
}

TrainerState read_trainer_state(const fs::path& dir) {
  const fs::path file = dir / "trainer_state.json";
  TrainerState state = trainer_state_from_json(read_json(file), file.string());
  if (state.best_model_checkpoint.empty()) return state;
  // The path is as the run was called then: from another folder, or before the run's was moved.
  const fs::path best = dir.parent_path() / fs::path(state.best_model_checkpoint).filename();
  if (fs::is_directory(best)) {
    state.best_model_checkpoint = best.string();
    return state;
  }
  state.best_global_step = checkpoint_step(best).value_or(state.best_global_step);  // what a notice tells
  state.best_model_checkpoint.clear();
  state.best_saved_metric.reset();
  state.best_metric.reset();  // nothing could be loaded that had it
  state.saves_without_better = state.evaluations_without_better = 0;
  state.best_step_at_save = -1;
  return state;
}

TrainerState resume_state(const fs::path& dir, ParamStore& store, Communicator& data, Communicator& control) {
  TrainerState state;
  together(control, "verifying the checkpoint", [&] {
    if (control.rank() == 0) verify_folder(dir);
  });
  together(control, "reading optimizer state", [&] {
    read_optimizer_shards(store, dir);
    state = read_trainer_state(dir);
  });
  store.publish_all(data);
  return state;
}

std::optional<fs::path> latest_whole(const fs::path& dir, std::vector<DamagedCheckpoint>& damaged) {
  for (const auto& [step, path] : checkpoints_in(dir)) {
    try {
      verify_folder(path);
      return path;
    } catch (const UserError& error) {
      damaged.push_back({path, error.message()});
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
