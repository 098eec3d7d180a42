#include "lockstep/session/job.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <pthread.h>
#include <torch/version.h>

#include "lockstep/base/error.h"
#include "lockstep/base/error_file.h"
#include "lockstep/base/version.h"
#include "lockstep/comm/agent_process.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/gpus.h"
#include "lockstep/comm/run_figures.h"
#include "lockstep/guard/settings.h"
#include "lockstep/guard/tree_key.h"
#include "lockstep/session/launch.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// One, unless blocks are to stand on several: then an equal part of the machine's GPUs.
int devices_of_rank(const RunOptions& run, const World& world) {
  const PlacementOptions& placement = run.placement;
  if (placement.virtual_devices > 0) {
    if (run.device == "cuda") {
      throw usage_error("--virtual_devices: they are parts of the host's memory, and --device says cuda",
                        "leave one of them out");
    }
    return placement.virtual_devices;
  }
  if (placement.device_map.empty() || device_of(run.device, 0) == "cpu") return 1;
  const int gpus = GpuDriver::of_process().count();
  return gpus < world.local_size ? gpus : gpus / world.local_size;  // fewer than ranks: each was shown its own
}

ConnectOptions connect_options(const Job& job, const RunOptions& run, const Env& env, const JobOptions& options) {
  const double longest = *std::ranges::max_element(run.judge.hard_seconds);
  // Where an agent watches, it ends the job in time and says why; the transport's own limit is for when it does not.
  constexpr double kAfterAgent = 10;
  const auto duration = [](double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  ConnectOptions out{
      .device = job.device,
      .transport = run.transport,
      .patience = duration(longest + kAfterAgent),
      .rendezvous_patience = duration(run.judge.hard_seconds[static_cast<size_t>(Phase::kStart)] + kAfterAgent),
      .recorder = options.recorder ? options.recorder : std::make_shared<Recorder>(),
      .agent = env.text("LOCKSTEP_AGENT").value_or(""),
      .keep_meeting_point = options.keep_meeting_point};
  if (run.guard != Guard::kOff && !options.agent_command.empty()) {
    out.spawn_agent = [&options, &run](const World& world) {
      return spawn_agent({.argv = options.agent_command,
                          .program = options.program,
                          .judge = run.judge,
                          .strict = run.guard == Guard::kStrict},
                         world);
    };
  }
  out.before_exit = [error_file = env.text("TORCHELASTIC_ERROR_FILE"), also = options.before_exit](const Ending& end) {
    if (also) also(end);
    if (error_file) write_error_file(*error_file, std::string(end.message.view()));
  };
  return out;
}

/// NCCL takes its buffers on a GPU at the first call of a kind there, some hundred MiB: here, so that what is then read as free is.
void make_first_calls(Job& job) {
  if (job.world.size == 1) return;
  for (const auto& gpu : job.gpus()) {
    const Tensor mine = zeros({1}, Dtype::kF32, gpu), all = zeros({job.world.size}, Dtype::kF32, gpu);
    job.data().all_gather(all, mine, "first gather").wait();  // under one name: each rank has a GPU of its own
    job.data().reduce_scatter(mine, all, /*accumulate=*/false, "first reduction").wait();
    synchronize_gpu(gpu);
  }
}

}  // namespace

std::vector<std::string> Job::gpus() const {
  const auto first = gpu_of(device);
  std::vector<std::string> names;
  for (int i = 0; first && i < num_devices; ++i) {
    names.push_back(fmt::format("{}:{}", device.substr(0, device.find(':')), *first + i));
  }
  return names;
}

Job start_job(const RunOptions& run, const Env& env, const JobOptions& options) {
  Job job{.world = World::from_env(env)};
  // What ps and top call it: copies of a launcher have its command line, and of its variables those that it was started with.
  if (job.world.size > 1) ::pthread_setname_np(::pthread_self(), fmt::format("lockstep:{}", job.world.rank).c_str());
  job.num_devices = devices_of_rank(run, job.world);
  job.device = device_of(run.device, job.world.local_rank * job.num_devices);
  if (run.deterministic) job.deterministic = std::make_unique<DeterministicOps>();
  check_guard(run.guard, job.world);
  (void)job_secret(env);  // the agent needs it; what is wrong with it is better told here
  const ConnectOptions connection = connect_options(job, run, env, options);
  connection.recorder->add_fact("version", kVersion);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    if (const auto value = env.text(name)) connection.recorder->add_setting(name, shell_word(*value));
  }
  connection.recorder->add_fact("libtorch", TORCH_VERSION);
  if (!job.on_cpu()) connection.recorder->add_fact("CUDA libraries", require_cuda_library().versions());
  job.comm = connect(job.world, connection);
  job.world = job.comm.data->world();  // its node is learnt where the ranks meet
  make_first_calls(job);
  return job;
}

CommunicationFigures communication_of(Job& job, CommFigures wanted) {
  if (job.world.size == 1 || wanted == CommFigures::kOff) return {};
  CommunicationFigures figures = collect_figures(job.data(), job.control());
  figures.every_label = wanted == CommFigures::kFull;
  return figures;
}

}  // namespace lockstep
