#include "lockstep/cli/job.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include <fmt/format.h>
#include <torch/version.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/agent_verb.h"
#include "lockstep/cli/failure.h"
#include "lockstep/cli/gpus.h"
#include "lockstep/cli/version.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/launcher.h"
#include "lockstep/comm/run_figures.h"
#include "lockstep/comm/together.h"
#include "lockstep/watch/communication_table.h"

namespace lockstep {
namespace {

/// local_ranks(), and said where the number of GPUs decides.
int wanted_ranks(const RunFlags& flags, const Env& env) {
  const int ranks = local_ranks(flags, env);
  if (ranks < 2 || flags.nproc > 0 || env.has("NPROC_PER_NODE")) return ranks;
  std::cout << fmt::format("{} GPUs, so {} ranks ({}); --nproc 1 or CUDA_VISIBLE_DEVICES chooses fewer\n", ranks, ranks,
                           flags.zero().name());
  return ranks;
}

/// One, unless blocks are to stand on several: then an equal part of the machine's GPUs.
int devices_of_rank(const RunFlags& flags, const World& world, const Env& env) {
  const PlacementFlags& placement = flags.placement;
  if (placement.virtual_devices > 0) {
    if (flags.device == "cuda") {
      throw usage_error("--virtual_devices: they are parts of the host's memory, and --device says cuda",
                        "leave one of them out");
    }
    return placement.virtual_devices;
  }
  if (placement.device_map.empty() || device_of(flags.device, 0, env) == "cpu") return 1;
  return std::max(1, visible_gpus(env) / std::max(1, world.local_size));
}

}  // namespace

int local_ranks(const RunFlags& flags, const Env& env) {
  if (flags.nproc > 0) return flags.nproc;
  if (const auto asked = env.integer("NPROC_PER_NODE")) return static_cast<int>(*asked);
  const int gpus = visible_gpus(env);
  if (flags.device == "cpu" || gpus < 2 || device_of("auto", 0, env) == "cpu") return 1;
  return flags.placement.device_map.empty() ? gpus : 1;  // with a map one drives all of them
}

namespace {

UserError strict_needs_one_node() {
  return usage_error("--guard strict: the ranks stand on several nodes, and strict compares through the agent of one",
                     "use --guard default, which compares over nodes too, a moment after the call");
}

/// The run goes on from its last whole checkpoint, or begins afresh when there is none. A checkpoint that was named
/// stays named.
std::vector<std::string> resuming(const std::vector<std::string>& argv) {
  const std::string flag = "--resume_from_checkpoint";
  const bool named =
      std::any_of(argv.begin(), argv.end(), [&](const std::string& word) { return word.starts_with(flag); });
  std::vector<std::string> words = argv;
  if (!named) words.insert(words.end(), {flag, "auto"});
  return words;
}

Launched start_ranks(const std::string& verb, const std::vector<std::string>& args, const RunFlags& flags,
                     const Env& env, int ranks) {
  std::vector<std::string> argv = {std::filesystem::read_symlink("/proc/self/exe").string(), verb};
  argv.insert(argv.end(), args.begin(), args.end());
  std::cout.flush();
  LaunchOptions options{.num_processes = ranks,
                        .program = "lockstep " + verb,
                        .judge = flags.judge(),
                        .guard = flags.guard == "off"      ? Guard::kOff
                                 : flags.guard == "strict" ? Guard::kStrict
                                                           : Guard::kDefault,
                        .max_restarts = flags.max_restarts};
  if (options.guard == Guard::kStrict && World::from_env(env).num_nodes > 1) throw strict_needs_one_node();
  if (verb == "sft") options.restart_argv = resuming;
  Launched done;
  options.interrupted = &done.interrupted;
  done.code = launch_ranks(argv, env, options);
  return done;
}

}  // namespace

std::optional<int> launch_if_asked(const std::string& verb, const std::vector<std::string>& args, const RunFlags& flags,
                                   const Env& env) {
  const World world = World::from_env(env);
  const bool launched = world.source != "single process";
  if (launched && !world.needs_launch) {
    if (flags.nproc > 0 && flags.nproc != world.local_size) {
      throw usage_error(fmt::format("--nproc {}: {} has started {} ranks on this machine", flags.nproc, world.source,
                                    world.local_size),
                        "leave --nproc out under a launcher");
    }
    return std::nullopt;
  }
  const int ranks = world.needs_launch && flags.nproc == 0 ? world.local_size : wanted_ranks(flags, env);
  if (ranks <= 1 && !world.needs_launch) return std::nullopt;
  return start_ranks(verb, args, flags, env, ranks).code;
}

Launched launch(const std::string& verb, const std::vector<std::string>& args, const RunFlags& flags, const Env& env) {
  return start_ranks(verb, args, flags, env, wanted_ranks(flags, env));
}

Job start_job(const std::string& verb, const RunFlags& flags, const Env& env, const JobOptions& job_options) {
  Job job{.world = World::from_env(env)};
  job.num_devices = devices_of_rank(flags, job.world, env);
  job.device = device_of(flags.device, job.world.local_rank * job.num_devices, env);
  const JudgeOptions judge = flags.judge();
  const double longest = *std::max_element(judge.hard_seconds.begin(), judge.hard_seconds.end());
  // Where an agent watches, it ends the job in time and says why; the transport's own limit is for when it does not.
  constexpr double kAfterAgent = 10;
  const auto duration = [](double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  ConnectOptions options{
      .device = job.device,
      .transport = transport_from_flag(flags.transport),
      .patience = duration(longest + kAfterAgent),
      .rendezvous_patience = duration(judge.hard_seconds[static_cast<size_t>(Phase::kStart)] + kAfterAgent),
      .recorder = process_recorder(),
      .agent = env.text("LOCKSTEP_AGENT").value_or(""),
      .keep_meeting_point = job_options.keep_meeting_point};
  if (flags.guard == "strict" && job.world.num_nodes > 1) throw strict_needs_one_node();
  if (flags.guard != "off") options.spawn_agent = [&] { return spawn_agent("lockstep " + verb, flags, job.world); };
  options.before_exit = [error_file = env.text("TORCHELASTIC_ERROR_FILE"),
                         also = job_options.before_exit](const Ending& ending) {
    if (also) also(ending);
    if (error_file) write_error_file(*error_file, std::string(ending.message.view()));
  };
  options.recorder->add_fact("version", kVersion);
  options.recorder->add_fact("libtorch", TORCH_VERSION);
  if (job.device != "cpu") options.recorder->add_fact("CUDA libraries", require_cuda_library().versions());
  job.comm = connect(job.world, options);
  return job;
}

void agree_on(Communicator& control, const std::vector<std::pair<std::string, std::string>>& facts) {
  for (const auto& [name, mine] : facts) {
    control.recorder().add_fact(name, mine);
    const auto all = control.all_gather_bytes(mine, "compare " + name);
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      throw SharedError(
          ExitCode::kUsage,
          fmt::format("the ranks do not agree on the {}: rank 0 has {}, rank {} has {}", name, all[0], rank, all[rank]),
          "all ranks need the same command line, files and version of lockstep");
    }
  }
}

CommunicationFigures communication_of(Job& job, const RunFlags& flags) {
  if (job.world.size == 1 || flags.comm_figures == "off") return {};
  CommunicationFigures figures = collect_figures(job.data(), job.control());
  figures.every_label = flags.comm_figures == "full";
  return figures;
}

void tell_communication(Job& job, const RunFlags& flags, std::ostream& out) {
  const CommunicationFigures figures = communication_of(job, flags);
  if (!job.reports()) return;
  for (const auto& line : communication_table(figures)) out << line << "\n";
}

std::string from_rank_0(Communicator& control, const std::string& value, const Label& label) {
  return control.all_gather_bytes(control.rank() == 0 ? value : "", label).at(0);
}

}  // namespace lockstep
