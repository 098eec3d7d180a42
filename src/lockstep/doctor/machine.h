// The machine under the ranks: shared memory, disk, open files, clocks, memory and cores, as facts and what is to be
// thought of them. Pure: machine_facts.h reads this machine's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/doctor/check_report.h"

namespace lockstep {

struct SharedMemoryFacts {
  int ranks = 1;            // of this node
  int64_t free_bytes = -1;  // -1: there is no /dev/shm
  int64_t wanted_bytes = 0, least_bytes = 0;
  bool required = false;  // --transport shm
  std::string unused;     // why the ranks do not take it: "--transport gloo"; empty: they do
};
CheckResult judge_shared_memory(const SharedMemoryFacts& facts);

struct DiskFacts {
  std::string dir;    // --output_dir
  std::string error;  // why nothing can be written there; empty: it can
  int64_t free_bytes = 0;
  std::optional<int64_t> checkpoint_bytes{};  // weights and optimizer; 0: nothing is saved; nothing without a model
};
CheckResult judge_disk(const DiskFacts& facts);

struct OpenFilesFacts {
  int64_t soft = 0, hard = 0;  // -1: without limit
  int64_t needed = 0;          // by one rank
};
/// What a rank opens at most: its files, and sockets to the other ranks.
int64_t open_files_needed(int64_t checkpoint_files, int ranks);
CheckResult judge_open_files(const OpenFilesFacts& facts);

struct ClockFacts {
  double wall_seconds = 0;  // since 1970
  double measured = 0;      // seconds of the monotonic clock
  double drift = 0;         // by which the wall clock went ahead meanwhile
};
CheckResult judge_clock(const ClockFacts& facts);
/// Wall clocks of the ranks, in seconds, read at one moment.
CheckResult judge_clocks_of_ranks(const std::vector<double>& wall_seconds);

struct MemoryFacts {
  std::string name = "memory";  // or "GPU 0 memory"
  int64_t total_bytes = 0, available_bytes = 0;
  bool limited = false;                // by a control group
  int ranks = 1;                       // that share it
  std::optional<int64_t> state_bytes;  // of one rank, as the plan says; nothing without a model
};
CheckResult judge_memory(const MemoryFacts& facts);

struct CoreFacts {
  int cores = 1;
  double quota = 0;  // cores' worth that a control group gives; 0: no limit
  int ranks = 1, threads = 1;
  bool threads_given = false;  // OMP_NUM_THREADS is set by a person
};
CheckResult judge_cores(const CoreFacts& facts);

/// `setting` as /sys/kernel/mm/transparent_hugepage/enabled has it: "always [madvise] never"; empty: not told.
CheckResult judge_huge_pages(const std::string& setting);

/// Where the programs lie that read films; empty: nowhere on PATH. They are optional: rows may have films as frames.
CheckResult judge_film_programs(const std::string& ffmpeg, const std::string& ffprobe);

}  // namespace lockstep
