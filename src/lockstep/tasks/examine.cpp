#include "lockstep/tasks/examine.h"

#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/json.h"
#include "lockstep/base/search_path.h"
#include "lockstep/base/text_format.h"
#include "lockstep/base/version.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/gpus.h"
#include "lockstep/doctor/checkpoint.h"
#include "lockstep/doctor/data.h"
#include "lockstep/doctor/machine_facts.h"
#include "lockstep/doctor/versions.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/session/model_folder.h"
#include "lockstep/session/quantising.h"
#include "lockstep/session/room.h"
#include "lockstep/tasks/plan_job.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/kernels.h"
#include "lockstep/tensor/product.h"

namespace lockstep {
namespace {

/// What one rank looks at. The first rank of a node looks at the node, all of them at their links.
class Examiner {
 public:
  Examiner(const ExamineOptions& options, const Env& env, const JobOptions& job, const ExamineSinks& sinks)
      : options_(options),
        run_(options.job.run),
        env_(env),
        job_options_(job),
        sinks_(sinks),
        world_(World::from_env(env)),
        report_([this](const CheckResult& result) {
          if (world_.rank == 0 && sinks_.result) sinks_.result(result);
        }) {}

  ExitCode examine();

 private:
  bool first_of_node() const { return world_.local_rank == 0; }
  /// Tells after two seconds how far a check has come.
  std::function<void(int64_t, int64_t)> progress(const std::string& phase) {
    return [this, phase, begun = Clock::now()](int64_t done, int64_t total) {
      constexpr double kPatience = 2;
      if (world_.rank != 0 || !sinks_.progress || seconds_since(begun) <= kPatience) return;
      sinks_.progress(Progress{.phase = phase, .done = done, .total = total});
    };
  }

  bool on_gpus() const { return device_of(run_.device, 0) != "cpu"; }

  void choose_device();
  void look_at_versions();
  void look_at_model();
  CheckResult look_at_plan(const CheckpointParts& parts);
  void look_at_machine();
  CheckResults memory_of_gpus() const;
  void look_at_data();
  void look_at_links(Job& job);
  void gather_from_nodes(Job& job);
  ExitCode examine_links();
  void finish();

  const ExamineOptions& options_;
  RunOptions run_;  // on the CPU, where the GPUs cannot be used
  const Env& env_;
  JobOptions job_options_;
  const ExamineSinks& sinks_;
  World world_;
  CheckReport report_;
  // Of the model, as far as it could be opened.
  std::optional<ModelFolder> folder_;
  std::optional<int64_t> state_bytes_, checkpoint_bytes_;
  int64_t checkpoint_files_ = 0;
  std::optional<CheckResult> device_failure_;
  std::vector<Link> links_;
  std::mutex finishing_;
  bool finished_ = false;  // under finishing_
};

/// All ranks of a node choose alike: GPUs when there is one for each of them. Else the ranks meet on the CPU, so that
/// what stands in the way of GPUs keeps nothing else from being looked at.
void Examiner::choose_device() {
  try {
    if (device_of(run_.device, world_.local_size - 1) != "cpu") (void)require_cuda_library();
  } catch (const Error& error) {
    device_failure_ = failure_of("devices", error);
    run_.device = "cpu";
  }
}

void Examiner::look_at_versions() {
  report_.run("versions", "lockstep", [] { return CheckResults{fine("lockstep", kVersion)}; });
  report_.run("versions", "LibTorch", [] { return CheckResults{judge_torch(torch_facts())}; });
  report_.run("versions", "GPU", [&] {
    return CheckResults{judge_gpus(gpu_facts(GpuDriver::of_process(), options_.job.run.device == "cuda"))};
  });
  if (device_failure_ && report_.code() == ExitCode::kOk) {  // else the line above has said it
    report_.run("versions", "devices", [&] { return CheckResults{*device_failure_}; });
  }
  report_.run("versions", "CPU", [] {
    return CheckResults{judge_cpu(kernels::instruction_set(), processor_name(), multiplies_natively(Dtype::kBF16))};
  });
}

CheckResult Examiner::look_at_plan(const CheckpointParts& parts) {
  folder_.emplace(run_.place(), run_.without, run_.audio_output);
  options_.job.components.check_against(folder_->model);
  PlanOptions options = options_.job.plan_options(world_.size, run_.dtype.value_or(folder_->dtype_of_config()));
  options.training = !options_.inference;
  options.adapters = planned_adapters(options_.job, folder_->model);
  options.quantised = quantisation_for(*folder_, run_.quant, options.compute, nullptr, nullptr);
  const Plan plan = make_plan(folder_->model, options);
  const StateBytes bytes = plan.state_bytes();
  state_bytes_ = bytes.total();
  checkpoint_bytes_ = options_.inference ? 0 : checkpoint_bytes(plan, parts.weights->total_bytes(), false);
  compatibility(folder_->model, plan).require();
  return fine("plan", fmt::format("{} parameters, {} trained; {} over {} rank{}, {}: {} on each without activations",
                                  format_count(plan.num_params()), format_count(plan.num_trainable()),
                                  options.zero.name(), world_.size, world_.size == 1 ? "" : "s",
                                  dtype_name(options.compute), format_bytes(*state_bytes_)));
}

void Examiner::look_at_model() {
  if (run_.model.empty()) return;
  const CheckpointParts parts = examine_checkpoint(run_.place(), run_.without, run_.audio_output, report_);
  checkpoint_files_ = parts.files();
  if (parts.whole()) report_.run("plan", "plan", [&] { return CheckResults{look_at_plan(parts)}; });
}

CheckResults Examiner::memory_of_gpus() const {
  CheckResults results;
  if (!on_gpus()) return results;
  const GpuDriver& driver = GpuDriver::of_process();
  for (int gpu = 0; gpu < std::min(world_.local_size, driver.count()); ++gpu) {
    const GpuMemory memory = gpu_memory(fmt::format("{}:{}", driver.type, gpu));
    results.push_back(judge_memory({.name = fmt::format("GPU {} memory", gpu),
                                    .total_bytes = memory.total_bytes,
                                    .available_bytes = memory.free_bytes,
                                    .state_bytes = state_bytes_}));
  }
  return results;
}

void Examiner::look_at_machine() {
  const int ranks = world_.local_size;
  const auto look = [&](const char* name, const std::function<CheckResult()>& at) {
    report_.run("machine", name, [&] { return CheckResults{at()}; });
  };
  look("shared memory",
       [&] { return judge_shared_memory(shared_memory_facts(world_, transport_name(run_.transport))); });
  look("disk", [&] { return judge_disk(disk_facts(options_.job.output_dir.string(), checkpoint_bytes_)); });
  look("open files",
       [&] { return judge_open_files(open_files_facts(open_files_needed(checkpoint_files_, world_.size))); });
  look("clock", [] { return judge_clock(clock_facts()); });
  look("memory", [&] { return judge_memory(memory_facts(ranks, on_gpus() ? std::nullopt : state_bytes_)); });
  report_.run("machine", "GPU memory", [&] { return memory_of_gpus(); });
  look("cores", [&] { return judge_cores(core_facts(ranks, env_)); });
  look("huge pages", [] { return judge_huge_pages(huge_pages_setting()); });
  look("films", [&] {
    const std::string folders = env_.text("PATH").value_or(kUsualSearchPath);
    return judge_film_programs(program_on(folders, "ffmpeg"), program_on(folders, "ffprobe"));
  });
  look("memory copy",
       [] { return fine("memory copy", fmt::format("{:.2f} GB/s on one core", copy_bandwidth() * 1e-9)); });
}

void Examiner::look_at_data() {
  if (options_.job.dataset.empty()) return;
  std::unique_ptr<Processor> processor;
  if (folder_ && folder_->family.processor) {
    try {
      processor = folder_->processor(options_.job.run.use_chat_template);
    } catch (const Error&) {  // told above, under checkpoint; rows are read without it
    }
  }
  for (const auto& file : options_.job.dataset) {
    report_.run("data", file, [&] {
      const PhaseScope scope(*job_options_.recorder, Phase::kData, file);
      return CheckResults{judge_data(data_facts(file, {.dataset = options_.job.rows.dataset(),
                                                       .process = options_.job.rows.process(),
                                                       .processor = processor.get(),
                                                       .max_positions = folder_ ? folder_->model.dims.max_positions : 0,
                                                       .progress = progress("data " + file)}))};
    });
  }
}

/// What the first ranks of other nodes have found: all that is not ok, under their names.
void Examiner::gather_from_nodes(Job& job) {
  if (world_.num_nodes == 1) return;
  Json mine = Json::array();
  if (first_of_node() && world_.rank != 0) {
    for (const auto& result : report_.results()) mine.push_back(as_json(result));
  }
  const auto all = job.control().all_gather_bytes(mine.dump(), "what the nodes have found");
  if (world_.rank != 0) return;
  int64_t fine_ones = 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (const auto& json : parse_json(all[rank], "what a node has found")) {
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

void Examiner::look_at_links(Job& job) {
  job.control().barrier("before the clocks are read");
  std::vector<double> clocks;
  for (const auto& text : job.control().all_gather_bytes(std::to_string(wall_seconds()), "clocks")) {
    clocks.push_back(std::stod(text));
  }
  report_.run("links", "clocks", [&] { return CheckResults{judge_clocks_of_ranks(clocks)}; });
  if (world_.size > 1) {
    LinkOptions options{.pair = {.transport = job.data().backend_name(), .device = job.device},
                        .progress = progress("links")};
    if (job.device != "cpu") options.synchronize = [device = job.device] { synchronize_gpu(device); };
    links_ = measure_links(world_, *job.comm.meeting_point, job.control(), options);
  }
  report_.run("links", "bandwidth", [&] { return judge_links(world_.size, job.data().backend_name(), links_); });
}

/// Once, on the first rank: the thread of the roll call may come when the main one is stuck.
void Examiner::finish() {
  const std::lock_guard lock(finishing_);
  if (world_.rank != 0 || std::exchange(finished_, true) || !sinks_.finished) return;
  sinks_.finished({report_, links_});
}

/// The ranks meet and look at each other. Throws what ends the job; by then the first rank has told it.
ExitCode Examiner::examine_links() {
  const auto ended = [this](ExitCode code, const std::string& text, const std::string& hint) {
    const std::string cure = hint.empty() ? "the lines of the ranks say more" : hint;
    report_.run("links", "ranks", [&] { return CheckResults{failure("ranks", text, cure, code)}; });
    finish();
  };
  try {
    return job_options_.recorder->confessing([&] {
      job_options_.keep_meeting_point = true;
      job_options_.before_exit = [&](const Ending& ending) {
        ended(static_cast<ExitCode>(ending.exit_code), std::string(ending.message.view()),
              std::string(ending.hint.view()));
      };
      Job job = start_job(run_, env_, job_options_);
      gather_from_nodes(job);
      look_at_links(job);
      finish();
      const std::string code = std::to_string(static_cast<int>(report_.code()));
      return static_cast<ExitCode>(std::stoi(from_rank_0(job.control(), code, "exit code")));
    });
  } catch (const Error& error) {
    ended(error.code(), error.message(), error.hint());
    throw;
  }
}

ExitCode Examiner::examine() {
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

ExitCode examine(const ExamineOptions& options, const Env& env, const JobOptions& job, const ExamineSinks& sinks) {
  JobOptions watched = job;
  if (!watched.recorder) watched.recorder = std::make_shared<Recorder>();
  return Examiner(options, env, watched, sinks).examine();
}

}  // namespace lockstep
