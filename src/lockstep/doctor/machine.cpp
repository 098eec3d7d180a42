#include "lockstep/doctor/machine.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr double kTight = 0.85;                        // of memory: what activations need is not counted here
constexpr double kYear2024 = 1704067200;               // in seconds since 1970
constexpr double kMostApart = 1.0, kMostDrift = 0.05;  // seconds
constexpr int64_t kComfortableFiles = 1024;

std::string limit_text(int64_t limit) { return limit < 0 ? "unlimited" : std::to_string(limit); }

std::string ranks_text(int ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

}  // namespace

CheckResult judge_shared_memory(const SharedMemoryFacts& facts) {
  const std::string name = "shared memory";
  const std::string found =
      facts.free_bytes < 0 ? "there is no /dev/shm" : format_bytes(facts.free_bytes) + " free in /dev/shm";
  if (!facts.unused.empty()) return fine(name, fmt::format("{}; not needed: {}", found, facts.unused));
  const std::string wants = fmt::format("{} want {}", ranks_text(facts.ranks), format_bytes(facts.wanted_bytes));
  const std::string cure =
      fmt::format("mount -o remount,size={0}M /dev/shm (in a container: --ipc=host or --shm-size={0}m)",
                  (facts.wanted_bytes + (1 << 20) - 1) >> 20);
  if (facts.free_bytes >= facts.wanted_bytes) {
    return fine(name, fmt::format("{}, {}", found, wants));
  }
  if (facts.free_bytes >= facts.least_bytes) {
    return warning(name, fmt::format("{}, {}: they use smaller pieces, which is slower", found, wants), cure);
  }
  if (facts.required) {
    return failure(name, fmt::format("{}, {}: --transport shm cannot work", found, wants), cure, ExitCode::kUsage);
  }
  return warning(name, fmt::format("{}, {}: they use Gloo over TCP, which is 3 to 10 times slower", found, wants),
                 cure);
}

CheckResult judge_disk(const DiskFacts& facts) {
  const std::string name = "disk";
  if (!facts.error.empty()) {
    return failure(name, fmt::format("{}: {}", facts.dir, facts.error),
                   "name another --output_dir, or give this user the right to write there", ExitCode::kUsage);
  }
  const std::string free = fmt::format("{} free for {}", format_bytes(facts.free_bytes), facts.dir);
  if (!facts.checkpoint_bytes) return fine(name, free + "; --model says how much a checkpoint needs");
  const int64_t each = *facts.checkpoint_bytes;
  if (each == 0) return fine(name, free);
  const std::string needs = fmt::format("a checkpoint with its optimizer needs {}", format_bytes(each));
  if (facts.free_bytes < each) {
    return failure(name, fmt::format("{}, {}", free, needs),
                   fmt::format("free {}, name an --output_dir on another disk, or --save_only_model true",
                               format_bytes(each - facts.free_bytes)),
                   ExitCode::kUsage);
  }
  if (facts.free_bytes / 2 < each) {
    return warning(name,
                   fmt::format("{}, {}: the second does not fit, and the first is kept until it is whole", free, needs),
                   fmt::format("free {} more, or save once: --save_strategy no saves at no step",
                               format_bytes(2 * each - facts.free_bytes)));
  }
  return fine(name, fmt::format("{}, {} ({} fit)", free, needs, facts.free_bytes / each));
}

int64_t open_files_needed(int64_t checkpoint_files, int ranks) {
  constexpr int64_t kOfItsOwn = 64, kOfARank = 4;  // libraries, logs; sockets of two groups and their meeting point
  return kOfItsOwn + checkpoint_files + kOfARank * ranks;
}

CheckResult judge_open_files(const OpenFilesFacts& facts) {
  const std::string name = "open files";
  if (facts.soft < 0 || facts.soft >= std::max(kComfortableFiles, facts.needed)) {
    return fine(name, fmt::format("up to {} (ulimit -n), a rank needs some {}", limit_text(facts.soft), facts.needed));
  }
  const int64_t wanted = std::max(kComfortableFiles, facts.needed) * 4;
  const std::string text = fmt::format("up to {} (ulimit -n), a rank needs some {}", facts.soft, facts.needed);
  const std::string as_root = fmt::format(
      "root must allow more: \"* hard nofile {}\" in /etc/security/limits.conf (in a container: --ulimit nofile={})",
      wanted, wanted);
  const std::string cure = facts.hard < 0 || facts.hard >= wanted ? fmt::format("ulimit -n {}", wanted)
                           : facts.hard > facts.soft              ? fmt::format("ulimit -n {}; {}", facts.hard, as_root)
                                                                  : as_root;
  return facts.soft < facts.needed ? failure(name, text, cure, ExitCode::kUsage) : warning(name, text, cure);
}

CheckResult judge_clock(const ClockFacts& facts) {
  const std::string name = "clock", cure = "timedatectl set-ntp true (or: chronyc makestep)";
  if (facts.wall_seconds < kYear2024) {
    return warning(name,
                   fmt::format("the wall clock says the year {}: run folders and logs get wrong dates",
                               1970 + static_cast<int64_t>(facts.wall_seconds / 31556952)),
                   cure);
  }
  if (std::abs(facts.drift) > kMostDrift) {
    return warning(name,
                   fmt::format("the wall clock moved by {:+.3f} s against the monotonic one within {:.1f} s: someone "
                               "sets it; waits are not touched by that, times in logs are",
                               facts.drift, facts.measured),
                   cure);
  }
  return fine(name, fmt::format("wall and monotonic clock agree within {:.1f} ms", std::abs(facts.drift) * 1e3));
}

CheckResult judge_clocks_of_ranks(const std::vector<double>& wall_seconds) {
  const std::string name = "clocks";
  const auto [least, most] = std::minmax_element(wall_seconds.begin(), wall_seconds.end());
  if (wall_seconds.size() < 2) return fine(name, "one rank");
  const double apart = *most - *least;
  if (apart <= kMostApart) {
    return fine(name, fmt::format("those of {} ranks agree within {:.1f} ms", wall_seconds.size(), apart * 1e3));
  }
  return warning(name,
                 fmt::format("rank {} is {:.1f} s ahead of rank {}: their logs cannot be laid side by side",
                             most - wall_seconds.begin(), apart, least - wall_seconds.begin()),
                 "on every node: timedatectl set-ntp true (or: chronyc makestep)");
}

CheckResult judge_memory(const MemoryFacts& facts) {
  if (facts.total_bytes == 0) return fine(facts.name, "the system does not tell how much there is");
  const std::string there =
      fmt::format("{} of {} free{}", format_bytes(facts.available_bytes), format_bytes(facts.total_bytes),
                  facts.limited ? " (limited by the control group)" : "");
  if (!facts.state_bytes) return fine(facts.name, there + "; --model says how much a rank needs");
  const std::string needs = fmt::format("{} hold{} {}{}", ranks_text(facts.ranks), facts.ranks == 1 ? "s" : "",
                                        format_bytes(*facts.state_bytes), facts.ranks == 1 ? "" : " each");
  const double part = static_cast<double>(*facts.state_bytes) * facts.ranks /
                      static_cast<double>(std::max<int64_t>(1, facts.available_bytes));
  const std::string text = fmt::format("{}, {} without activations", there, needs);
  const std::string cure =
      "share more (--deepspeed zero3, more ranks or machines), train less (--train projector), or take a smaller "
      "model; lockstep plan shows what is held";
  if (part > 1) return failure(facts.name, text, cure, ExitCode::kMemory);
  if (part > kTight) {
    return warning(
        facts.name, fmt::format("{}: {:.0f} % of it, little is left for activations", text, part * 100),
        "--gradient_checkpointing true, --per_device_train_batch_size 1, a smaller --max_length; or " + cure);
  }
  return fine(facts.name, text);
}

CheckResult judge_cores(const CoreFacts& facts) {
  const double cores = facts.quota > 0 ? std::min<double>(facts.quota, facts.cores) : facts.cores;
  const int wanted = facts.ranks * facts.threads;
  const std::string text = fmt::format(
      "{:g} core{}{} for {} of {} thread{}{}", cores, cores == 1 ? "" : "s",
      cores < facts.cores ? fmt::format(" of {} (limited by the control group)", facts.cores) : "",
      ranks_text(facts.ranks), facts.threads, facts.threads == 1 ? "" : "s", facts.ranks == 1 ? "" : " each");
  if (wanted <= cores) return fine("cores", text);
  const int fitting = std::max(1, static_cast<int>(cores) / facts.ranks);
  if (facts.ranks > cores) {
    return warning("cores", text + ": ranks wait for one another's time",
                   fmt::format("--nproc {} at most", std::max(1, static_cast<int>(cores))));
  }
  return warning("cores", text + ": threads wait for one another",
                 facts.threads_given ? fmt::format("OMP_NUM_THREADS={}, or leave it unset under --nproc", fitting)
                                     : fmt::format("OMP_NUM_THREADS={}", fitting));
}

CheckResult judge_huge_pages(const std::string& setting) {
  const auto begin = setting.find('['), end = setting.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    return fine("huge pages", "the kernel does not tell; they are optional");
  }
  const std::string chosen = setting.substr(begin + 1, end - begin - 1);
  if (chosen != "never") return fine("huge pages", chosen);
  return warning("huge pages", "never: large buffers are mapped in pieces of 4 KiB, which costs a few percent",
                 "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root; optional)");
}

CheckResult judge_film_programs(const std::string& ffmpeg, const std::string& ffprobe) {
  if (!ffmpeg.empty() && !ffprobe.empty()) return fine("films", ffmpeg + " and " + ffprobe + " read them");
  return fine("films", fmt::format("no {} on PATH: rows with films as files are left out (apt-get install ffmpeg)",
                                   ffmpeg.empty() ? "ffmpeg" : "ffprobe"));
}

}  // namespace lockstep
