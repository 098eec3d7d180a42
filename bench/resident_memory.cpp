// What the kernel says a training run needs: resident memory at its peak, less what the process held before the run had
// loaded anything. The same process trains another, tiny model first, so that libraries and their scratch are there.
//
//   resident_memory TINY_MODEL FLAGS-OF-SFT…       writes OUTPUT_DIR/resident-<rank>.json: {"before": …, "peak": …, "rings": …}
#include <iostream>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/process.h"
#include "lockstep/base/process_memory.h"
#include "lockstep/cli/train_flags.h"
#include "lockstep/session/launch.h"
#include "lockstep/session/rank_main.h"
#include "lockstep/tasks/fine_tune.h"
#include "lockstep/tensor/device_memory.h"

using namespace lockstep;

namespace {

/// Two steps of the tiny model under the same flags.
void warm(Job& job, FineTuneOptions options, const std::string& model) {
  options.run.model = model;
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
  (void)fine_tune(job, options, EventBus());
  const ProcessMemory after = read_memory();
  write_json(options.output_dir / ("resident-" + std::to_string(job.world.rank) + ".json"),
             {{"before", before},
              {"peak", after.peak_bytes},
              {"rings", after.resident_bytes - after.anonymous_bytes - after.file_bytes}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "resident_memory TINY_MODEL FLAGS-OF-SFT...\n";
    return 2;
  }
  const Env env = Env::process();
  const auto recorder = std::make_shared<Recorder>();
  return rank_main("resident_memory", env, *recorder, [&] { return measure({argv + 1, argv + argc}, env, recorder); });
}
