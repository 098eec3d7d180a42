#include "lockstep/session/session.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/process_memory.h"
#include "lockstep/base/text_format.h"
#include "lockstep/base/version.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/shared_memory.h"
#include "lockstep/comm/together.h"
#include "lockstep/model/fingerprint.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/plan/auto_map.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/plan/placement_json.h"
#include "lockstep/session/adapter_base.h"
#include "lockstep/session/media_environment.h"
#include "lockstep/session/placement.h"
#include "lockstep/session/quantising.h"
#include "lockstep/session/room.h"
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/state/merged_adapter.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/text/unheeded_ends.h"

namespace lockstep {
namespace {

/// For planning where no rows are known: a row of text, all of it to be learnt.
RowsOfStep text_row(int64_t tokens) {
  Features row;
  row.input_ids.assign(static_cast<size_t>(tokens), 0);
  row.labels = row.input_ids;
  return {{row}};
}

}  // namespace

Session::Session(Job& job, RunOptions options) : job_(job), options_(std::move(options)) {
  together(job.control(), "opening the model", [&] {
    const int64_t asked = options_.placement.memory_limit;
    options_.placement = limits_of_tensors(job_, options_.placement);
    if (options_.placement.memory_limit != asked) {
      notices_.push_back(fmt::format("--memory_limit {} leaves {} for tensors: the process holds the rest already",
                                     format_bytes(asked), format_bytes(options_.placement.memory_limit)));
    }
    folder_ = std::make_unique<ModelFolder>(options_.place(), options_.without, options_.audio_output);
    for (auto& told : unheeded_variables(options_.variables, folder_->family)) notices_.push_back(std::move(told));
    weights_ = std::make_unique<Weights>(open_weights(folder_->family, folder_->config));
    if (options_.verify && job_.reports()) verify_files(weights_->dir(), weights_->files());
    if (!options_.vision_tower.empty() && !weights_->borrows()) {
      notices_.push_back(fmt::format("--vision_tower {}: its weights are not read, {} holds a tower itself",
                                     options_.vision_tower.string(), options_.model.string()));
    }
    if (options_.adapters.empty() && std::filesystem::exists(options_.model / "adapter_config.json")) {
      notices_.push_back(
          fmt::format("the adapter that stands beside the weights of {0} is left out: --adapters {0} takes it, as "
                      "transformers does by itself",
                      options_.model.string()));
    }
    keys_ = std::make_unique<KeyMap>(KeyMap::match(folder_->model, *weights_));
    if (job_.reports()) std::ranges::copy(folder_->config.notices(), std::back_inserter(notices_));
    open_adapters();
    processor_ = folder_->processor(options_.use_chat_template);
    const std::string ends = job_.reports() ? unheeded_ends(options_.model, processor_->tokenizer()) : "";
    if (!ends.empty()) notices_.push_back(ends);
    if (job_.reports()) compare_spelling();
    // Texts are spelled as the tokenizer has it, and a conversation that was asked for is for this run.
    if (job_.reports() && options_.use_chat_template && options_.joint.conversation.empty()) {
      rendering_ = rendering_of(*processor_);
      require_same_rendering(options_.model, rendering_, unread_media(folder_->model));
      for (const auto& one : options_.adapters) {
        require_same_rendering(one.dir, rendering_, unread_media(folder_->model));
      }
    }
    dtype_ = options_.dtype.value_or(folder_->dtype_of_config());
    choose_codes();
    fingerprint_ = model_fingerprint(options_.place());
    for (const auto& dir : weights_->borrowed_from()) fingerprint_ += "+" + model_fingerprint(dir);
    for (const auto& one : opened_) fingerprint_ += "+" + one.layout->name + one.folder->fingerprint();
  });
}

Json Session::identity() const {
  std::string spelling = spelling_fingerprint(options_.place());
  for (const auto& dir : weights_->borrowed_from()) spelling += "+" + spelling_fingerprint(dir);
  Json identity = {{"model", fingerprint_},
                   {"dtype", std::string(dtype_name(dtype_))},
                   {"spelling", spelling},
                   {"chat_template", options_.use_chat_template}};
  if (options_.quant.asked()) {
    const QuantOptions& quant = options_.quant;
    identity["quantised"] = {quant.bits, quant.type, quant.nested, quant.skip};
  }
  if (const Joint& joint = options_.joint; !joint.said().empty()) {
    identity["joint"] = {joint.projector_type, joint.select_feature, joint.aspect_ratio, joint.select_layer.value_or(0),
                         joint.conversation};
  }
  if (options_.merge_adapter) identity["merged"] = true;
  // Rows with pictures fail then.
  if (const std::string left_out = left_out_reason(model()); !left_out.empty()) identity["left_out"] = left_out;
  return identity;
}

void Session::open_adapters() {
  if (!options_.rows_choose_adapter || options_.merge_adapter) options_.require_one_adapter();
  if (options_.merge_adapter && options_.adapters.empty()) {
    throw usage_error("--merge_lora true: there is no adapter to merge", "--adapters DIR");
  }
  for (const auto& given : options_.adapters) {
    auto folder = std::make_shared<const AdapterFolder>(AdapterFolder::open(given.dir));
    AdapterMatch match = folder->match(folder_->model, naming());
    if (options_.verify && job_.reports()) folder->verify();
    AdapterLayout layout = match.layout;
    if (options_.adapters.size() > 1) layout.name = given.name;
    if (!match.idle.empty()) {
      notices_.push_back(
          fmt::format("--adapters {}: {} tensors are of modules that nothing is computed with ({}, …): carried along",
                      given.dir.string(), match.idle.size(), match.idle.front().name));
    }
    opened_.push_back({std::move(folder), std::move(match), std::make_shared<const AdapterLayout>(std::move(layout))});
  }
  if (opened_.empty()) return;
  if (options_.merge_adapter) return;
  adapters_ = opened_.front().layout;
  if (has_several()) check_several();
}

/// What lies beside an adapter's tensors spelled its rows.
void Session::compare_spelling() {
  for (const auto& one : options_.adapters) {
    const std::string other = options_.use_chat_template ? other_template(one.dir, options_.model) : "";
    for (const auto& told : {unknown_tokens(one.dir, options_.model, processor_->tokenizer()), other}) {
      if (!told.empty()) notices_.push_back(told);
    }
  }
}

void Session::check_several() const {
  std::set<std::string> names;
  for (const auto& one : opened_) {
    const auto refuse = [&](const std::string& what, const std::string& hint) {
      throw usage_error(fmt::format("--adapters {}: {}", one.folder->dir().string(), what), hint);
    };
    if (one.layout->name.empty()) {
      refuse("expected a name, since there are several and rows choose one by it", "--adapters a=DIR b=DIR");
    }
    if (!names.insert(one.layout->name).second) {
      refuse(fmt::format("two of them are called {}", one.layout->name), "--adapters a=DIR b=DIR");
    }
    const auto& saved = one.layout->saved;
    const auto& frozen = one.match.frozen;
    const bool whole = !saved.empty() || !frozen.empty();
    if (!whole && !one.layout->config.changes_base()) continue;
    refuse(whole
               ? fmt::format("it holds modules of the model itself ({}), which rows cannot choose",
                             saved.empty() ? frozen.front().name : *saved.begin())
               : fmt::format("it began with parts of the base's matrices ({}), which the others were not trained over",
                             one.layout->config.init),
           "use it alone, or merge it: lockstep export --adapters DIR --merge_lora true");
  }
}

size_t Session::num_choices() const {
  return opened_.empty() || options_.merge_adapter || options_.adapters[0].name.empty() ? 0 : opened_.size();
}

std::optional<size_t> Session::adapter_of(const Sample& row) const {
  if (row.adapter.empty()) return opened_.empty() ? std::nullopt : std::make_optional<size_t>(0);
  std::vector<std::string> names;
  for (size_t i = 0; i < num_choices(); ++i) {
    names.push_back(options_.adapters[i].name);
    if (names.back() == row.adapter) return i;
  }
  if (!names.empty()) names.emplace_back(kBaseAlone);
  if (row.adapter == kBaseAlone && (!names.empty() || opened_.empty())) return std::nullopt;
  throw data_error(fmt::format("{}: field \"adapter\": expected {}, found \"{}\"", row.where,
                               names.empty() ? "none, as --adapters names none" : join(names, ", "), row.adapter),
                   "--adapters NAME=DIR gives one a name");
}

void Session::choose_codes() {
  quantised_ = quantisation_for(*folder_, options_.quant, dtype_, weights_.get(), keys_.get());
  if (quantised_) notices_.push_back(quantised_->describe(folder_->model));
  if (quantised_ && options_.merge_adapter) {
    throw usage_error(
        "--merge_lora true: an adapter is put into values, and this model's matrices are codes",
        "leave --merge_lora out, or merge into the unquantised model: lockstep export --adapters DIR --model DIR");
  }
  if (!quantised_ || opened_.empty() || !adapters_->config.changes_base()) return;
  if (weights_->any_quantised()) {
    throw usage_error(
        fmt::format("--adapters {}: it began with parts of the base's matrices ({}), which are codes in {}",
                    opened_.front().folder->dir().string(), adapters_->config.init, options_.model.string()),
        "--model with the folder of the unquantised model");
  }
}

void Session::adapt(AdapterLayout layout) {
  layout.config.base_model = std::filesystem::weakly_canonical(options_.model).string();
  adapters_ = std::make_shared<const AdapterLayout>(std::move(layout));
}

AdapterFiles Session::adapter_files() const {
  AdapterFiles files{.model = folder_->model, .layout = *adapters_, .from = nullptr, .carried = {}};
  if (opened_.empty()) return files;
  files.from = opened_.front().folder;
  const AdapterMatch& match = opened_.front().match;
  files.carried = match.idle;
  files.carried.insert(files.carried.end(), match.frozen.begin(), match.frozen.end());
  return files;
}

PlanOptions Session::inference() const {
  PlanOptions options{
      .world = job_.world.size, .zero = options_.zero, .compute = dtype_, .training = false, .adapters = adapters_};
  for (size_t i = 1; i < opened_.size(); ++i) options.further_adapters.push_back(opened_[i].layout);
  return options;
}

bool Session::makes_map() const { return is_map_word(options_.placement.device_map); }

namespace {

/// Asked of every rank: what they were told may differ, which the plan names.
bool all_may_share(Job& job, const RunOptions& run, const PlanOptions& options) {
  if (job.world.size == 1) return false;
  const char* const mine = may_share_weights(job, run, options) ? "yes" : "no";
  const auto all = job.control().all_gather_bytes(mine, "whether weights may stand in memory once");
  return std::ranges::find(all, "no") == all.end();
}

}  // namespace

void Session::decide(PlanOptions options, const RowsOfStep& rows, const RowWork& work) {
  options.quantised = quantised_;
  if (all_may_share(job_, options_, options)) {
    shared_ = SharedMemory::among(job_.control());
    if (!shared_) {
      notices_.push_back(
          "weights are gathered for each use: these ranks do not see one memory (/proc/PID/fd of rank 0)");
    }
  }
  options.shared_weights = shared_ != nullptr;
  place(options, rows, work);
  make_plan(options);
}

void Session::keep_blocks(int blocks) {
  PlanOptions options = plan_.options;
  options.kept_blocks = blocks;
  make_plan(options);
}

void Session::make_plan(const PlanOptions& options) {
  together(job_.control(), "making the plan", [&] {
    plan_ = lockstep::make_plan(folder_->model, options);
    compatibility(folder_->model, plan_).require();
  });
  agree_on(job_.control(),
           {{"version", kVersion}, {"plan", fmt::format("{:016x}", plan_.hash())}, {"model", fingerprint_}});
}

/// Where the blocks stand; one rank chooses, so that all hold to the same.
void Session::place(PlanOptions& options, const RowsOfStep& rows, const RowWork& work) {
  RehearsalOptions devices = devices_for_rehearsal(job_, options_.placement);
  devices.work = work;
  std::string chosen;
  together(job_.control(), "placing blocks", [&] {
    options_.placement.check();
    if (!job_.reports()) return;
    const RowsOfStep planned =
        rows.empty() ? text_row(std::min<int64_t>(512, folder_->model.dims.max_positions)) : rows;
    ChosenPlacement made = choose_placement(devices, options_.placement, folder_->model, options, planned);
    std::ranges::move(made.notices, std::back_inserter(notices_));
    predicted_ = made.forecast.account();
    chosen = placement_json(made.placement).dump();
  });
  options.placement =
      placement_from_json(parse_json(from_rank_0(job_.control(), chosen, "placement"), "the placement"));
}

/// What is known of a run that trains nothing before it has begun: its weights, where one GPU holds them all.
MemoryForecast Session::weights_on_gpu() const {
  if (job_.num_devices > 1 || options_.placement.offload_params) return {};
  MemoryForecast forecast;
  forecast.devices.push_back({.name = job_.device});
  forecast.devices[0].figures.phases.at(static_cast<size_t>(MemoryPhase::kLoad)).bytes = plan_.state_bytes().total();
  return forecast;
}

void Session::check_room() {
  if (plan_.options.training || options_.force) return;
  together(job_.control(), "comparing memory with the machine's", [&] {
    if (!job_.reports()) return;
    if (!job_.on_cpu()) {
      require_gpu_room(weights_on_gpu(), gpu_memory);
      return;
    }
    MachineRoom room{
        .rank_bytes = plan_.state_bytes().total(), .ranks = job_.world.local_size, .machine = machine_memory()};
    if (room.fits()) return;
    const RehearsedRows rows = RehearsedRows::typical(*folder_, 0);  // for what would help: weights alone are too much
    const PlannedJob planned{model(),
                             devices_for_rehearsal(job_, options_.placement),
                             rows,
                             {.options = plan_.options},
                             job_.world.local_size};
    require_room(planned, predict_memory(planned, planned.shape), room);
  });
}

void Session::load(uint64_t seed) {
  check_room();
  const ProcessMemory idle = read_memory();
  together(job_.control(), "loading weights", [&] {
    store_ =
        std::make_unique<ParamStore>(plan_, job_.world.rank, make_devices(job_, options_.placement, plan_), shared_);
    load_weights(seed);
    executor_ = std::make_unique<Executor>(folder_->model, plan_, *store_, job_.data());
    executor_->watch(hooks());
  });
  if (plan_.options.training) return;
  meter_.emplace(job_, store_->devices(), idle.resident_bytes - idle.file_bytes, predicted_, shared_bytes());
}

SharedBytes Session::shared_bytes() const {
  if (!shared_) return {};
  return {.all = shared_->size(), .of_this_rank = plan_.state_bytes().params};
}

void Session::load_merged() {
  const OpenedAdapter& one = opened_.front();
  MergedAdapter merged(model(), *weights_, *keys_, *one.folder, one.match);
  if (merged.untied()) {
    throw usage_error(fmt::format("--merge_lora: {} changes one of embedding and head, which are one tensor here",
                                  one.folder->dir().string()),
                      "lockstep export --adapters DIR --merge_lora true writes a folder in which they are two");
  }
  store_->load(*weights_, *keys_, merged);
}

void Session::load_weights(uint64_t seed) {
  if (options_.merge_adapter) return load_merged();
  if (!adapters_) return store_->load(*weights_, *keys_);
  const auto of_folder = [&](const OpenedAdapter& one) {
    return AdapterValues(model(), *one.layout, one.folder, one.match.where);
  };
  AdapterValues values = opened_.size() == 1 ? of_folder(opened_.front()) : AdapterValues(model(), *adapters_, seed);
  if (has_several()) {
    for (const auto& one : opened_) values.add(one.layout->suffix(), of_folder(one));
  }
  values.computed_with(quantised_);
  store_->load(*weights_, *keys_, &values);
}

void Session::tell_notices(const EventBus& events) const {
  for (const auto& text : notices_) events.emit(Notice{text});
}

void Session::tell_memory(const EventBus& events) {
  MemoryMeasured memory = meter_.value().measure("");
  memory.last = true;
  if (job_.reports()) events.emit(memory);
}

ExecutorHooks Session::hooks() {
  ExecutorHooks hooks;
  const PlacementOptions& placement = options_.placement;
  if (placement.debug_sync && !job_.on_cpu()) {
    hooks.synchronize = [devices = store_->devices()] {
      for (const auto& device : devices.blocks) synchronize_gpu(device->torch_device());
    };
  }
  if (!placement.device_log.empty()) {
    const std::string rank = job_.world.size > 1 ? fmt::format(".rank-{}", job_.world.rank) : "";
    device_log_ = std::make_unique<DeviceLog>(placement.device_log.string() + rank);
    hooks.crossed = [this](const Crossing& crossing) { device_log_->write(crossing); };
  }
  return hooks;
}

CollateOptions Session::collate() const {
  const int32_t pad = processor_->pad_token();  // a tokenizer's settings may name one that the model has no row for
  return {.pad_token = pad < model().dims.vocab ? pad : 0};
}

}  // namespace lockstep
