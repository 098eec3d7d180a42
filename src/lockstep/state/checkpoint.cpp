#include "lockstep/state/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
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
#include "lockstep/state/checkpoint_optimizer.h"
#include "lockstep/state/checkpoint_room.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kTemporary = ".tmp-";

bool is_temporary(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(kPrefix) && name.find(kTemporary) != std::string::npos;
}

/// What an earlier, killed save left behind: a run folder belongs to one run at a time.
void remove_leftovers(const fs::path& dir) {
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (is_temporary(entry.path())) stale.push_back(entry.path());
  }
  for (const auto& path : stale) fs::remove_all(path);
}

/// The finished folder takes its name in one step, also when an older checkpoint of the same step stands there.
void publish(const fs::path& temporary, const fs::path& final_path) {
  const bool replaces = fs::exists(final_path);
  const int flags = replaces ? RENAME_EXCHANGE : 0;
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), flags) != 0) {
    throw data_error(fmt::format("{}: cannot be renamed to {}: {}", temporary.string(), final_path.filename().string(),
                                 std::strerror(errno)));
  }
  sync_folder(final_path.parent_path());
  if (replaces) fs::remove_all(temporary);
}

/// A damaged one takes no whole one's place, whatever its step: it stays as long as one older than it does.
void prune(const SaveOptions& options, const fs::path& newest, const fs::path& best) {
  if (options.save_total_limit <= 0) return;
  auto all = checkpoints_in(options.output_dir);
  // A best one that stands in another folder, where the run came from, takes no place here.
  const auto stay =
      std::erase_if(all, [&](const auto& entry) { return entry.second == newest || entry.second == best; });
  auto places = std::max<int64_t>(0, options.save_total_limit - static_cast<int64_t>(stay));
  for (const auto& [step, path] : all) {
    if (places == 0) {
      remove_checkpoint(path);
    } else if (std::ranges::find(options.damaged, path) == options.damaged.end() && has_all_bytes(path)) {
      --places;
    }
  }
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
                 const fs::path& final_path, const Communicator& control) {
  if (!options.save_only_model) write_optimizer_shard(contents.store, control.size(), dir);
  if (control.rank() != 0) return;
  if (contents.adapters == nullptr) {
    write_side_files(contents.side_files, contents.store.plan().options.compute, dir);
  }
  write_text(dir / "args.json", contents.args_json);
  TrainerState state = contents.state;
  if (state.best_metric && state.best_global_step == state.global_step) state.best_model_checkpoint = final_path;
  write_json(dir / "trainer_state.json", to_json(state));
}

void write_everything(const CheckpointContents& contents, const SaveOptions& options, const fs::path& dir,
                      const fs::path& final_path, Communicator& data, Communicator& control) {
  const bool first = control.rank() == 0;
  together(control, "making the checkpoint folder", [&] {
    if (!first) return;
    make_folders(options.output_dir);
    remove_leftovers(options.output_dir);
    make_folders(dir);
  });
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
  together(control, "writing optimizer state", [&] {
    say_what_makes_room(options, dir, [&] { write_state(contents, options, dir, final_path, control); });
  });
}

}  // namespace

std::vector<std::pair<int64_t, fs::path>> checkpoints_in(const fs::path& dir) {
  std::vector<std::pair<int64_t, fs::path>> found;
  if (!fs::is_directory(dir)) return found;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const auto step = checkpoint_step(entry.path());
    if (step && entry.is_directory()) found.emplace_back(*step, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::optional<int64_t> checkpoint_step(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* begin = name.data() + std::strlen(kPrefix);
  const char* end = name.data() + name.size();
  int64_t step = 0;
  const auto parsed = std::from_chars(begin, end, step);
  if (begin == end || parsed.ptr != end || parsed.ec != std::errc{}) return std::nullopt;
  return step;
}

CheckpointSaved save_checkpoint(const CheckpointContents& contents, const SaveOptions& options, Communicator& data,
                                Communicator& control) {
  const auto begun = Clock::now();
  const fs::path final_path = options.output_dir / (kPrefix + std::to_string(contents.state.global_step));
  const std::string suffix = control.all_gather_bytes(std::to_string(::getpid()), "checkpoint name").at(0);
  const fs::path temporary = final_path.string() + kTemporary + suffix;
  std::map<std::string, ManifestEntry> entries;
  try {
    write_everything(contents, options, temporary, final_path, data, control);
    entries = gather_entries(contents, temporary, !options.save_only_model, control);
    together(control, "sealing the checkpoint", [&] {
      if (control.rank() != 0) return;
      seal_folder(temporary, contents.state.global_step, entries);
      publish(temporary, final_path);
    });
  } catch (const CollectiveError&) {
    throw;  // another rank is gone: the next save removes what is left
  } catch (Error& error) {
    std::error_code ignored;
    if (control.rank() == 0) fs::remove_all(temporary, ignored);
    error.add_frame(fmt::format("saving {}", final_path.string()));
    throw;
  }
  together(control, "removing old checkpoints", [&] {
    if (control.rank() == 0) prune(options, final_path, contents.state.best_model_checkpoint);
  });
  CheckpointSaved saved{
      .step = contents.state.global_step, .path = final_path.string(), .seconds = seconds_since(begun)};
  for (const auto& [name, entry] : entries) saved.bytes += entry.bytes;
  return saved;
}

TrainerState read_trainer_state(const fs::path& dir) {
  const fs::path file = dir / "trainer_state.json";
  TrainerState state = trainer_state_from_json(read_json(file), file.string());
  if (state.best_model_checkpoint.empty()) return state;
  // The path is as the run was called then: from another folder, or before the run's was moved.
  const fs::path best = dir.parent_path() / fs::path(state.best_model_checkpoint).filename();
  state.best_model_checkpoint = fs::is_directory(best) ? best.string() : "";
  if (state.best_model_checkpoint.empty()) state.best_metric.reset();  // nothing could be loaded that had it
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

void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path doomed = checkpoint.string() + kTemporary + "pruned";
  fs::rename(checkpoint, doomed);
  fs::remove_all(doomed);
}

}  // namespace lockstep
