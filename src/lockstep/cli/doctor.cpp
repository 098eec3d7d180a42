#include "lockstep/cli/doctor.h"

#include <filesystem>
#include <iostream>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/doctor_flags.h"
#include "lockstep/cli/failure.h"
#include "lockstep/cli/gpus.h"
#include "lockstep/cli/media_flags.h"
#include "lockstep/cli/session.h"
#include "lockstep/cli/version.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/doctor/checkpoint.h"
#include "lockstep/doctor/data.h"
#include "lockstep/doctor/links.h"
#include "lockstep/doctor/machine_facts.h"
#include "lockstep/doctor/versions.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/tensor/kernels.h"
#include "lockstep/watch/console_sink.h"

namespace lockstep {

const char* const doctor_summary = "say what could stop or slow a job here, and what repairs it";

namespace {

/// What one rank looks at. The first rank of a node looks at the node, all of them at their links.
class Doctor {
 public:
  Doctor(const DoctorFlags& flags, const Env& env)
      : flags_(flags),
        run_(flags.job.run),
        env_(env),
        world_(World::from_env(env)),
        report_([this](const CheckResult& result) { tell(result); }),
        console_(std::cerr, console_options(env, 2, /*quiet=*/world_.rank != 0)) {}

  int examine();

 private:
  bool first_of_node() const { return world_.local_rank == 0; }
  void tell(const CheckResult& result) const {
    if (world_.rank == 0 && !flags_.json) std::cout << as_line(result) << std::flush;
  }
  /// Tells after two seconds how far a check has come.
  std::function<void(int64_t, int64_t)> progress(const std::string& phase) {
    return [this, phase, begun = Clock::now()](int64_t done, int64_t total) {
      constexpr double kPatience = 2;
      if (seconds_since(begun) > kPatience) console_.on(Progress{.phase = phase, .done = done, .total = total});
    };
  }

  bool on_gpus() const { return device_of(run_.device, 0, env_) != "cpu"; }

  void choose_device();
  void look_at_versions();
  void look_at_model();
  CheckResult look_at_plan(const CheckpointParts& parts);
  void look_at_machine();
  CheckResults gpu_memory() const;
  void look_at_data();
  void look_at_links(Job& job);
  void gather_from_nodes(Job& job);
  int examine_links();
  void print();

  const DoctorFlags& flags_;
  RunFlags run_;  // on the CPU, where the GPUs cannot be used
  const Env& env_;
  World world_;
  CheckReport report_;
  ConsoleSink console_;
  // Of the model, as far as it could be opened.
  std::optional<ModelFolder> folder_;
  std::optional<int64_t> state_bytes_, checkpoint_bytes_;
  int64_t checkpoint_files_ = 0;
  std::optional<CheckResult> device_failure_;
  std::vector<Link> links_;
  std::mutex printing_;
  bool printed_ = false;  // under printing_
};

/// All ranks of a node choose alike: GPUs when there is one for each of them. Else the ranks meet on the CPU, so that
/// what stands in the way of GPUs keeps nothing else from being looked at.
void Doctor::choose_device() {
  try {
    if (device_of(run_.device, world_.local_size - 1, env_) != "cpu") (void)require_cuda_library();
  } catch (const Error& error) {
    device_failure_ = failure_of("devices", error);
    run_.device = "cpu";
  }
}

void Doctor::look_at_versions() {
  report_.run("versions", "lockstep", [] { return CheckResults{fine("lockstep", kVersion)}; });
  report_.run("versions", "LibTorch", [] { return CheckResults{judge_torch(torch_facts())}; });
  report_.run("versions", "GPU",
              [&] { return CheckResults{judge_gpus(gpu_facts(visible_gpus(env_), flags_.job.run.device == "cuda"))}; });
  if (device_failure_ && report_.code() == ExitCode::kOk) {  // else the line above has said it
    report_.run("versions", "devices", [&] { return CheckResults{*device_failure_}; });
  }
  report_.run("versions", "CPU", [] { return CheckResults{judge_cpu(kernels::instruction_set(), processor_name())}; });
}

CheckResult Doctor::look_at_plan(const CheckpointParts& parts) {
  folder_.emplace(parts.dir, run_.without());
  flags_.job.components.check_against(folder_->model);
  PlanOptions options = flags_.job.plan_options(world_.size, run_.dtype().value_or(folder_->dtype_of_config()));
  options.training = !flags_.inference;
  const Plan plan = make_plan(folder_->model, options);
  const StateBytes bytes = plan.state_bytes();
  state_bytes_ = bytes.total();
  const int64_t saved = (bytes.master + bytes.optimizer) * (options.zero.shards_optimizer() ? world_.size : 1);
  checkpoint_bytes_ = flags_.inference ? 0 : parts.weights->total_bytes() + saved;
  compatibility(folder_->model, plan).require();
  return fine("plan", fmt::format("{} parameters, {} trained; {} over {} rank{}, {}: {} on each without activations",
                                  format_count(plan.num_params()), format_count(plan.num_trainable()),
                                  options.zero.name(), world_.size, world_.size == 1 ? "" : "s",
                                  dtype_name(options.compute), format_bytes(*state_bytes_)));
}

void Doctor::look_at_model() {
  const std::string& dir = run_.model;
  if (dir.empty()) return;
  const CheckpointParts parts = examine_checkpoint(dir, run_.without(), report_);
  checkpoint_files_ = parts.files();
  if (parts.whole()) report_.run("plan", "plan", [&] { return CheckResults{look_at_plan(parts)}; });
}

CheckResults Doctor::gpu_memory() const {
  CheckResults results;
  if (!on_gpus()) return results;
  const CudaApi& cuda = require_cuda_library();
  for (int gpu = 0; gpu < world_.local_size; ++gpu) {
    const GpuMemory memory = cuda.memory(gpu);
    results.push_back(judge_memory({.name = fmt::format("GPU {} memory", gpu),
                                    .total_bytes = memory.total_bytes,
                                    .available_bytes = memory.free_bytes,
                                    .state_bytes = state_bytes_}));
  }
  return results;
}

void Doctor::look_at_machine() {
  const int ranks = world_.local_size;
  const auto look = [&](const char* name, const std::function<CheckResult()>& at) {
    report_.run("machine", name, [&] { return CheckResults{at()}; });
  };
  look("shared memory", [&] { return judge_shared_memory(shared_memory_facts(world_, run_.transport)); });
  look("disk", [&] { return judge_disk(disk_facts(flags_.job.output_dir, checkpoint_bytes_)); });
  look("open files",
       [&] { return judge_open_files(open_files_facts(open_files_needed(checkpoint_files_, world_.size))); });
  look("clock", [] { return judge_clock(clock_facts()); });
  look("memory", [&] { return judge_memory(memory_facts(ranks, on_gpus() ? std::nullopt : state_bytes_)); });
  report_.run("machine", "GPU memory", [&] { return gpu_memory(); });
  look("cores", [&] { return judge_cores(core_facts(ranks, env_)); });
  look("huge pages", [] { return judge_huge_pages(huge_pages_setting()); });
  look("memory copy",
       [] { return fine("memory copy", fmt::format("{:.2f} GB/s on one core", copy_bandwidth() * 1e-9)); });
}

void Doctor::look_at_data() {
  if (flags_.job.dataset.empty()) return;
  std::unique_ptr<Processor> processor;
  if (folder_ && folder_->family.processor) {
    try {
      processor = folder_->processor();
    } catch (const Error&) {  // told above, under checkpoint; rows are read without it
    }
  }
  for (const auto& file : flags_.job.dataset) {
    report_.run("data", file, [&] {
      const PhaseScope scope(*process_recorder(), Phase::kData, file);
      return CheckResults{judge_data(data_facts(file, {.dataset = flags_.job.rows.dataset(env_),
                                                       .process = flags_.job.rows.process(),
                                                       .processor = processor.get(),
                                                       .max_positions = folder_ ? folder_->model.dims.max_positions : 0,
                                                       .progress = progress("data " + file)}))};
    });
  }
}

/// What the first ranks of other nodes have found: all that is not ok, under their names.
void Doctor::gather_from_nodes(Job& job) {
  if (world_.num_nodes == 1) return;
  Json mine = Json::array();
  if (first_of_node() && world_.rank != 0) {
    for (const auto& result : report_.results()) mine.push_back(as_json(result));
  }
  const auto all = job.control().all_gather_bytes(mine.dump(), "what the nodes have found");
  if (world_.rank != 0) return;
  int64_t fine_ones = 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (const auto& json : Json::parse(all[rank])) {
      CheckResult result = result_from(json);
      result.where = fmt::format("the node of rank {}", rank);
      if (result.level == Level::kOk) {
        ++fine_ones;
      } else {
        report_.add(std::move(result));
      }
    }
  }
  report_.run("nodes", "nodes", [&] {
    return CheckResults{fine("nodes", fmt::format("{} were looked at; {} further checks of the others are ok",
                                                  world_.num_nodes, fine_ones))};
  });
}

void Doctor::look_at_links(Job& job) {
  job.control().barrier("before the clocks are read");
  std::vector<double> clocks;
  for (const auto& text : job.control().all_gather_bytes(std::to_string(wall_seconds()), "clocks")) {
    clocks.push_back(std::stod(text));
  }
  report_.run("links", "clocks", [&] { return CheckResults{judge_clocks_of_ranks(clocks)}; });
  if (world_.size > 1) {
    LinkOptions options{.pair = {.transport = job.data().backend_name(), .device = job.device},
                        .progress = progress("links")};
    if (job.device != "cpu") options.synchronize = require_cuda_library().synchronize;
    links_ = measure_links(world_, *job.comm.meeting_point, job.control(), options);
  }
  report_.run("links", "bandwidth", [&] { return judge_links(world_.size, job.data().backend_name(), links_); });
}

/// Once, on the first rank: the thread of the roll call may come when the main one is stuck.
void Doctor::print() {
  const std::lock_guard lock(printing_);
  if (world_.rank != 0 || std::exchange(printed_, true)) return;
  if (!flags_.json) {
    std::cout << report_.summary() << std::endl;
    return;
  }
  Json checks = Json::array(), links = Json::array();
  for (const auto& result : report_.results()) checks.push_back(as_json(result));
  for (const auto& link : links_) links.push_back(as_json(link));
  std::cout << Json{{"checks", checks},
                    {"links", links},
                    {"ok", report_.count(Level::kOk)},
                    {"warnings", report_.count(Level::kWarning)},
                    {"failures", report_.count(Level::kFailure)},
                    {"exit_code", static_cast<int>(report_.code())}}
                   .dump(2)
            << std::endl;
}

/// The ranks meet and look at each other. Throws what ends the job; by then the first rank has told it.
int Doctor::examine_links() {
  const auto ended = [this](ExitCode code, const std::string& text, const std::string& hint) {
    const std::string cure = hint.empty() ? "the lines of the ranks say more" : hint;
    report_.run("links", "ranks", [&] { return CheckResults{failure("ranks", text, cure, code)}; });
    print();
  };
  try {
    return process_recorder()->confessing([&] {
      Job job =
          start_job("doctor", run_, env_, {.keep_meeting_point = true, .before_exit = [&](const Ending& ending) {
                                             ended(static_cast<ExitCode>(ending.exit_code),
                                                   std::string(ending.message.view()), std::string(ending.hint.view()));
                                           }});
      gather_from_nodes(job);
      look_at_links(job);
      print();
      return std::stoi(from_rank_0(job.control(), std::to_string(static_cast<int>(report_.code())), "exit code"));
    });
  } catch (const Error& error) {
    ended(error.code(), error.message(), error.hint());
    throw;
  }
}

int Doctor::examine() {
  choose_device();
  if (first_of_node()) {
    look_at_versions();
    look_at_model();
    look_at_machine();
    look_at_data();
  }
  return examine_links();
}

}  // namespace

int run_doctor(const std::vector<std::string>& args, const Env& env) {
  auto flags = parse_doctor_flags(args);
  if (!flags) return 0;
  read_media_environment(env, flags->job.rows.media);
  if (const auto code = launch_if_asked("doctor", args, flags->job.run, env)) return *code;
  return Doctor(*flags, env).examine();
}

}  // namespace lockstep
