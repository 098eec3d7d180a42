// What the kernel says a training run needs: resident memory at its peak, less what the process held before the run had
// loaded anything. The same process trains another, tiny model first, so that libraries and their scratch are there.
//
//   resident_memory TINY_MODEL FLAGS-OF-SFT…       writes OUTPUT_DIR/resident-<rank>.json: {"before": …, "peak": …, "rings": …,
//                                                  "weights": …}
//
// Weights that stand in memory once count whole in the peak of each rank that reads them; how much of them is resident there
// is "weights", as the kernel says in /proc/self/smaps, so that each rank can be given its part.
//
// With --virtual_devices the same for each device, as {"devices": {"virtual:0": …}}. Virtual devices share a process, so the
// kernel has no figure for one of them. Therefore the arena of each device (all its blocks of 4 KiB or more, and what waits
// for the next taker) is put in a window of addresses of its own, and the pages that are resident there are what the kernel
// says in /proc/self/smaps, looked at again and again by a thread while the job runs: the largest sum counts. Nothing of it
// goes through our counters. Smaller blocks stand in the C library's heap, and in no window.
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/json.h"
#include "lockstep/base/process.h"
#include "lockstep/base/process_memory.h"
#include "lockstep/base/worker.h"
#include "lockstep/cli/train_flags.h"
#include "lockstep/session/launch.h"
#include "lockstep/session/rank_main.h"
#include "lockstep/tasks/fine_tune.h"
#include "lockstep/tensor/device_memory.h"

using namespace lockstep;

namespace {

constexpr int kWindows = 16;
constexpr uintptr_t kFirstWindow = uintptr_t{1} << 45, kWindowBytes = uintptr_t{1} << 40;
constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
std::atomic<bool> windows_are_open{false};
std::array<std::atomic<uintptr_t>, kWindows> used_of_window{};

/// Of "virtual:3" 3; -1 of any other device.
int window_of(const std::string& device) {
  const std::string kind = "virtual:";
  int index = -1;
  if (device.starts_with(kind)) std::from_chars(device.data() + kind.size(), device.data() + device.size(), index);
  return index < kWindows ? index : -1;
}

/// Where the next mapping of the thread's device goes; nullptr: anywhere. A gap keeps mappings from becoming one.
void* next_in_window(size_t bytes) {
  const int window = window_of(DeviceMemory::current()->name());
  if (window < 0) return nullptr;
  const uintptr_t wanted = (bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  const uintptr_t at = used_of_window.at(static_cast<size_t>(window)).fetch_add(wanted);
  return reinterpret_cast<void*>(kFirstWindow + static_cast<uintptr_t>(window) * kWindowBytes + at);  // NOLINT
}

}  // namespace

/// In the place of the C library's, for this program alone.
extern "C" void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  const bool plain = address == nullptr && file == -1 && flags == (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  if (plain && windows_are_open.load()) {
    address = next_in_window(bytes);
    if (address != nullptr) flags |= MAP_FIXED_NOREPLACE;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, file, offset));  // NOLINT
}

namespace {

/// In each window, and of weights that all ranks read.
struct Resident {
  std::array<int64_t, kWindows> windows{};
  int64_t weights = 0;
};

/// What the kernel says.
Resident resident_now() {
  Resident out;
  std::ifstream smaps("/proc/self/smaps");
  int window = -1;
  bool weights = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0;
    const auto number = std::from_chars(line.data(), line.data() + line.size(), begin, 16);
    if (number.ec == std::errc{} && *number.ptr == '-') {
      const bool inside = begin >= kFirstWindow && begin < kFirstWindow + kWindows * kWindowBytes;
      window = inside ? static_cast<int>((begin - kFirstWindow) / kWindowBytes) : -1;
      weights = line.find("memfd:lockstep-weights") != std::string::npos;
    } else if ((window >= 0 || weights) && line.starts_with("Rss:")) {
      (weights ? out.weights : out.windows.at(static_cast<size_t>(window))) += std::stoll(line.substr(4)) << 10;
    }
  }
  return out;
}

/// The most that was resident while this lives.
class ResidentWatch {
 public:
  ResidentWatch() : worker_("resident", [this](const std::stop_token& stop) { watch(stop); }) {}

  Resident finish() {
    worker_.request_stop();
    worker_.join();
    return most_;
  }

 private:
  void watch(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const Resident now = resident_now();
      for (size_t w = 0; w < kWindows; ++w) most_.windows.at(w) = std::max(most_.windows.at(w), now.windows.at(w));
      most_.weights = std::max(most_.weights, now.weights);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  Resident most_;
  Worker worker_;
};

/// Two steps of the tiny model under the same flags, but in float32: of 16-bit products the matrix library keeps what it has
/// made for each shape, which is the run's to have.
void warm(Job& job, FineTuneOptions options, const std::string& model) {
  options.run.model = model;
  options.run.dtype = Dtype::kF32;
  options.output_dir = options.output_dir.string() + "-warm";
  options.train.max_steps = 2;
  (void)fine_tune(job, options, EventBus());
}

int measure(const std::vector<std::string>& words, const Env& env, const std::shared_ptr<Recorder>& recorder) {
  const auto flags = parse_sft_flags({words.begin() + 1, words.end()});
  if (!flags) return 0;
  const FineTuneOptions options = flags->options(env);
  LaunchRequest request{.argv = {own_executable().string()}, .program = "resident_memory"};
  request.argv.insert(request.argv.end(), words.begin(), words.end());
  if (const auto code = launch_if_asked(request, options.run, env)) return *code;
  Job job = start_job(options.run, env, {.program = "resident_memory", .recorder = recorder});
  warm(job, options, words.front());
  if (!reset_peak())
    throw Error(ExitCode::kUsage, "the kernel does not let the peak begin anew (/proc/self/clear_refs)");
  // The rings that ranks share and the pages that tensors stand on are the run's, although the tiny model's has touched
  // some of them already.
  DeviceMemory::host()->reset_peaks();
  const ProcessMemory idle = read_memory();
  const int64_t before = idle.anonymous_bytes + idle.file_bytes - DeviceMemory::host()->figures().most_held;
  ResidentWatch watch;
  (void)fine_tune(job, options, EventBus());
  const ProcessMemory after = read_memory();
  Json found = {{"before", before},
                {"peak", after.peak_bytes},
                {"rings", after.resident_bytes - after.anonymous_bytes - after.file_bytes},
                {"devices", Json::object()}};
  const Resident most = watch.finish();
  found["weights"] = most.weights;
  for (int w = 0; w < options.run.placement.virtual_devices && w < kWindows; ++w) {
    found["devices"]["virtual:" + std::to_string(w)] = most.windows.at(static_cast<size_t>(w));
  }
  write_json(options.output_dir / ("resident-" + std::to_string(job.world.rank) + ".json"), found);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "resident_memory TINY_MODEL FLAGS-OF-SFT...\n";
    return 2;
  }
  windows_are_open = true;
  const Env env = Env::process();
  const auto recorder = std::make_shared<Recorder>();
  return rank_main("resident_memory", env, *recorder, [&] { return measure({argv + 1, argv + argc}, env, recorder); });
}
