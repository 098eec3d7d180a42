#include "lockstep/tasks/shared_folder.h"

#include <optional>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/machine.h"
#include "lockstep/base/new_file.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/together.h"
#include "lockstep/guard/frames.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr auto kPatience = std::chrono::seconds(5);  // of network disks that look again only now and then
constexpr const char* kCure = "every host writes its part there: name a place on a disk that all hosts share";

UserError refused(const std::string& flag, const fs::path& folder, const Job& job, const std::string& why) {
  return usage_error(
      fmt::format("{}: {} {} rank {}'s host ({})", flag, folder.string(), why, job.world.rank, host_name()), kCure);
}

/// A file of rank 0's that goes again.
class Sign {
 public:
  explicit Sign(fs::path path) : path_(std::move(path)) {
    NewFile file(path_);
    file.finish();
  }
  ~Sign() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Sign(const Sign&) = delete;
  Sign& operator=(const Sign&) = delete;

 private:
  fs::path path_;
};

void look_for(const std::string& flag, const fs::path& sign, const Job& job) {
  const Deadline deadline(kPatience);
  std::error_code ignored;
  while (!fs::exists(sign, ignored)) {
    if (deadline.passed())
      throw refused(flag, sign.parent_path(), job, "was made by rank 0 and is not there, or another one, on");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  try {
    const NewFile probe(sign.string() + fmt::format("-{}", job.world.rank));
  } catch (const UserError& error) {
    throw refused(flag, sign.parent_path(), job, fmt::format("cannot be written ({}) on", error.message()));
  }
}

}  // namespace

void require_shared(const std::string& flag, const fs::path& folder, Job& job) {
  if (job.world.num_nodes < 2) return;
  const fs::path sign =
      folder / (".seen-by-all-" + from_rank_0(job.control(), random_token().substr(0, 12), "sign of a folder"));
  std::optional<Sign> made;
  together(job.control(), "writing to a folder of all hosts", [&] {
    if (job.reports()) made.emplace(sign);
  });
  together(job.control(), "looking for a folder on every host", [&] {
    if (!job.reports() && job.world.local_rank == 0) look_for(flag, sign, job);
  });
}

std::string other_place_given(const std::string& flag, const fs::path& given, Job& job) {
  if (job.world.num_nodes < 2) return {};
  const auto all = job.control().all_gather_bytes(given.string() + '\n' + host_name(), flag + " of every rank");
  const auto folder_in = [](const std::string& told) { return told.substr(0, told.rfind('\n')); };
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (folder_in(all[rank]) == folder_in(all[0])) continue;
    return fmt::format("{}: rank {} on {} was given {}, and rank 0 {}: all write where rank 0 was told to", flag, rank,
                       all[rank].substr(all[rank].rfind('\n') + 1), folder_in(all[rank]), folder_in(all[0]));
  }
  return {};
}

}  // namespace lockstep
