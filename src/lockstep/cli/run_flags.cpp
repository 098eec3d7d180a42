#include "lockstep/cli/run_flags.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/plan/component_choice.h"
#include "lockstep/plan/max_memory.h"
#include "lockstep/session/adapter_base.h"
#include "lockstep/session/media_environment.h"

namespace lockstep {
namespace {

constexpr size_t kMaxTokenFile = size_t{16} << 20;

CommFigures comm_figures_from(const std::string& word) {
  if (word == "off") return CommFigures::kOff;
  return word == "full" ? CommFigures::kFull : CommFigures::kKind;
}

Guard guard_from(const std::string& word) {
  if (word == "off") return Guard::kOff;
  return word == "strict" ? Guard::kStrict : Guard::kDefault;
}

void add_placement_flags(CLI::App& app, RunFlags& flags) {
  const std::string group = "Devices and memory";
  app.add_option("--device_map", flags.given.placement.device_map,
                 "blocks over the devices that a rank drives: a JSON file {\"model.layers.0\": 0, …} as Accelerate "
                 "writes it, or auto | balanced | balanced_low_0 | sequential")
      ->group(group);
  app.add_option("--max_memory", flags.given.placement.max_memory,
                 "what blocks may take of each device: 0:10GiB,1:20GiB,cpu:64GiB, or 10GiB for each")
      ->group(group);
  app.add_option("--virtual_devices", flags.given.placement.virtual_devices,
                 "parts of the host's memory as devices, each with a limit and counters of its own: to try device maps "
                 "and offloading without a GPU")
      ->check(whole_number(0, 64))
      ->group(group);
  app.add_option("--offload", flags.offload,
                 "optimizer, params: masters and AdamW's moments, or weights, stay in host memory; weights come to the "
                 "device a block ahead")
      ->delimiter(',')
      ->group(group);
  app.add_option("--memory_limit", flags.memory_limit,
                 "of each device, for one rank: 10GiB. A batch that would need more is split, a job that cannot fit is "
                 "refused with a table")
      ->group(group);
  app.add_flag("--debug_sync", flags.given.placement.debug_sync,
               "wait for the device after every block, so that its errors show at the block that made them (slow)")
      ->group(group);
  app.add_option("--device_log", flags.device_log,
                 "file for every tensor that crosses from device to device: name, bytes, from, to, time (one JSON "
                 "object a line; .rank-N is added for several ranks)")
      ->group(group);
  app.add_option("--deterministic", flags.given.deterministic,
                 "the same bits from the same work on GPUs too, somewhat slower; what has no such kernel there is "
                 "refused (the CPU always gives the same bits)")
      ->capture_default_str()
      ->group(group);
}

void add_model_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("--model,--model_id_or_path", flags.given.model,
                 "checkpoint folder (with --adapters: of their base; default: what they say)")
      ->group("Model");
  app.add_option(
         "--adapters", flags.adapters,
         "folder of an adapter over it, as peft, ms-swift or lockstep wrote it; infer takes several as NAME=DIR")
      ->group("Model");
  add_joint_flags(app, flags.given.vision_tower, flags.given.joint);
  add_new_token_flag(app, flags.new_special_tokens);
  app.add_option(
         "--conversation", flags.given.joint.conversation,
         "plain: rows are a picture and its caption, as LLaVA's first stage has them (default: the chat template)")
      ->check(CLI::IsMember({"plain"}))
      ->group("Model");
  app.add_option("--torch_dtype,--dtype", flags.torch_dtype,
                 "bfloat16 | float16 | float32 (default: as config.json says)")
      ->group("Model");
  app.add_option(
         "--use_chat_template", flags.given.use_chat_template,
         "false: rows are texts, or a question and its answer, as they stand, with the end-of-sequence token behind "
         "them; `lockstep pt` is sft with it and --loss_scale all")
      ->capture_default_str()
      ->group("Model");
  app.add_option(
         "--verify", flags.given.verify,
         "compare the weights with the hashes that stand beside them in a checkpoint of lockstep: one rank reads "
         "them once more for that, 0.2 s a GiB where memory holds the files, else as long as the disk takes")
      ->capture_default_str()
      ->group("Model");
  app.add_option("--no_build", flags.no_build,
                 "components that are not built: they hold no byte, rows that need them are refused, and a checkpoint "
                 "keeps their tensors as they are (vision)")
      ->group("Model");
}

}  // namespace

void add_joint_flags(CLI::App& app, std::filesystem::path& vision_tower, Joint& joint) {
  const std::string group = "Model";
  app.add_option(
         "--vision_tower", vision_tower,
         "folder of the CLIP tower, where the model keeps none: LLaVA's own folders (default: mm_vision_tower), or "
         "a Llama or Mistral that becomes a LLaVA with it")
      ->group(group);
  app.add_option("--pretrain_mm_mlp_adapter", joint.projector,
                 "file with the projector's tensors, mm_projector.bin of LLaVA's first stage (default: made anew)")
      ->group(group);
  app.add_option("--mm_projector_type", joint.projector_type, "linear | mlp1x_gelu | mlp2x_gelu (default: linear)")
      ->group(group);
  app.add_option("--mm_vision_select_layer", joint.select_layer,
                 "which of the tower's states is projected: -2, the last but one (default: -1)")
      ->check(whole_number(-4096, 4096))
      ->group(group);
  app.add_option("--mm_vision_select_feature", joint.select_feature, "patch | cls_patch (default: patch)")
      ->group(group);
  app.add_option("--image_aspect_ratio", joint.aspect_ratio, "square | pad (default: square)")->group(group);
}

void add_new_token_flag(CLI::App& app, std::vector<std::string>& words) {
  app.add_option("--new_special_tokens", words,
                 "special tokens that the tokenizer is given, or a .txt file of them; where the tables have no row "
                 "left, they get "
                 "some, each the mean of the others (default: of an adapter, what its args.json says)")
      ->expected(1, 1 << 20)
      ->allow_extra_args(false)  // else [BOX] is taken for a list
      ->group("Model");
}

void add_shard_size_flag(CLI::App& app, const std::string& group, int64_t& bytes) {
  const auto read = [&bytes](const std::string& text) {
    bytes = parse_bytes(text, "--max_shard_size");
    return bytes > 0 ? std::string() : fmt::format("expected more than 0 bytes, found \"{}\"", text);
  };
  add_word_flag(app, "--max_shard_size", "SIZE", "5GB", "of each file of weights; a larger tensor has one of its own",
                read)
      ->group(group);
}

std::vector<std::string> new_tokens_from(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const auto& word : words) {
    if (!word.ends_with(".txt")) {
      out.push_back(word);
      continue;
    }
    if (!std::filesystem::is_regular_file(word)) {
      throw usage_error(fmt::format("--new_special_tokens {}: expected a file of tokens, found none", cut_text(word)),
                        "a token that ends in .txt can only stand in such a file");
    }
    std::string text = read_text(word, kMaxTokenFile);
    if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // the mark that some editors put at a file's begin
    std::istringstream tokens(text);
    for (std::string token; tokens >> token;) out.push_back(token);
  }
  return out;
}

void add_run_flags(CLI::App& app, RunFlags& flags) {
  add_model_flags(app, flags);
  add_quant_flags(app, flags.quant);
  app.add_option("--media_variable", flags.variables, "NAME=VALUE, as in the environment")->group("");
  app.add_option("--media_default", flags.media_defaults, "NAME=VALUE, where the environment does not say it")
      ->group("");
  app.add_option("--deepspeed", flags.deepspeed,
                 "zero0 | zero1 | zero2 | zero3, zero2_offload | zero3_offload, or a DeepSpeed JSON (default: zero3)")
      ->group("Ranks");
  app.add_option("--shared_weights", flags.given.shared_weights,
                 "zero3 on the CPUs of one host: the weights stand in memory once, each rank writes its part and all "
                 "read them there; false: they are gathered for each use")
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--nproc", flags.given.nproc, "local ranks to start (default: NPROC_PER_NODE, else one a GPU, else 1)")
      ->check(whole_number(0, kMostLocalRanks))
      ->group("Ranks");
  app.add_option("--transport", flags.transport, "auto | gloo | shm | nccl")->capture_default_str()->group("Ranks");
  app.add_option("--device", flags.given.device, "auto | cpu | cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--patience", flags.patience,
                 "seconds that ranks wait for one that is busy before the job is ended; by its phase too: "
                 "600,save=1800,data=60 (phases: start load data forward backward step save evaluate generate)")
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--soft_patience", flags.soft_patience, "seconds until a rank that others wait for is named")
      ->check(real_number({.above = 0, .most = kMostSeconds}))
      ->capture_default_str()
      ->group("Ranks");
  app.add_option(
         "--guard", flags.guard,
         "default | strict | off: strict compares every call before it starts (slow, one node); off: nobody watches, "
         "a rank that waits only has the transport's own time limit")
      ->check(CLI::IsMember({"default", "strict", "off"}))
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--max_restarts", flags.given.max_restarts,
                 "start the ranks again after a failure, from the last checkpoint, so many times")
      ->check(whole_number(0, 1000))
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--comm_figures", flags.comm_figures,
                 "kind | full | off: what the ranks' communication cost, told at the end: calls, bytes, seconds and "
                 "bandwidth of each kind of call, or of each label")
      ->check(CLI::IsMember({"kind", "full", "off"}))
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--force", flags.given.force,
                 "begin even where this machine's memory or disk are predicted not to suffice")
      ->capture_default_str()
      ->group("Devices and memory");
  add_placement_flags(app, flags);
}

JudgeOptions RunFlags::judge() const {
  JudgeOptions options{.soft_seconds = soft_patience};
  const auto seconds = [&](const std::string& text) {
    const std::string fault = number_fault(text, {.above = 0, .most = kMostSeconds});
    if (fault.empty()) return std::stod(text);
    throw usage_error(fmt::format("--patience {}: {}, of seconds", patience, fault),
                      "for instance --patience 600 or --patience 600,save=1800");
  };
  for (const auto& part : split(patience, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      options.hard_seconds.fill(seconds(part));
      continue;
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < kPhases; ++i) names.emplace_back(phase_name(static_cast<Phase>(i)));
    const std::string name = part.substr(0, equals);
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) {
      const std::string near = nearest_name(name, names);
      throw usage_error(fmt::format("--patience {}: there is no phase \"{}\"", patience, name),
                        near.empty() ? "phases: " + join(names, " ") : "did you mean " + near + "?");
    }
    options.hard_seconds[static_cast<size_t>(at - names.begin())] = seconds(part.substr(equals + 1));
  }
  return options;
}

bool RunFlags::offloads(const std::string& what) const {
  return std::find(offload.begin(), offload.end(), what) != offload.end();
}

PlacementOptions RunFlags::placement(const DeepSpeedChoice& choice) const {
  for (const auto& word : offload) {
    if (word == "optimizer" || word == "params" || word == "none") continue;
    const std::string near = nearest_name(word, {"optimizer", "params", "none"});
    throw usage_error(fmt::format("--offload {}: expected optimizer, params or none", word),
                      near.empty() ? "--offload optimizer" : "did you mean " + near + "?");
  }
  if (offloads("none") && offload.size() > 1) throw usage_error("--offload: none, and something besides");
  PlacementOptions out = given.placement;
  out.offload_optimizer = offloads("optimizer") || choice.offload_optimizer;
  out.offload_params = offloads("params") || choice.offload_params;
  out.offload_if_apart = !offloads("optimizer") && !offloads("params");
  out.device_log = device_log;
  if (!memory_limit.empty()) out.memory_limit = parse_bytes(memory_limit, "--memory_limit");
  if (out.memory_limit <= 0) {
    throw usage_error(fmt::format("--memory_limit {}: expected more than 0 bytes", memory_limit),
                      "for example --memory_limit 10GiB, or leave it out");
  }
  out.check();
  return out;
}

Env RunFlags::with_variables(const Env& env) const {
  std::map<std::string, std::string> all = env.all();
  for (const auto& one : variables) all[one.substr(0, one.find('='))] = one.substr(one.find('=') + 1);
  for (const auto& one : media_defaults) all.emplace(one.substr(0, one.find('=')), one.substr(one.find('=') + 1));
  return Env(std::move(all));
}

RunOptions RunFlags::options(const Env& env) const {
  RunOptions out = given;
  for (const auto& text : adapters) out.adapters.push_back(NamedAdapter::from_flag(text));
  if (model_is_needed && out.model.empty() && out.adapters.empty()) {
    throw usage_error("--model is required",
                      "--model DIR: a checkpoint folder; or --adapters DIR, which names its base");
  }
  if (!torch_dtype.empty()) out.dtype = dtype_from_flag(torch_dtype);
  out.quant = quant.options(torch_dtype);
  out.new_tokens = new_tokens_from(new_special_tokens);
  take_from_adapters(out);
  const DeepSpeedChoice choice = deepspeed.empty() ? DeepSpeedChoice{} : DeepSpeedChoice::from_flag(deepspeed);
  out.zero = choice.zero;
  out.without = components_from("--no_build", no_build);
  out.variables = media_variables(env);
  std::erase_if(out.variables,
                [&](const std::string& name) {  // nobody asked for these; MEDIA_AS says how the others count
                  const bool is_default =
                      std::ranges::any_of(media_defaults, [&](const auto& one) { return one.starts_with(name + "="); });
                  return is_default && name != "MEDIA_AS";
                });
  out.audio_output = env.flag("ENABLE_AUDIO_OUTPUT").value_or(true);
  out.transport = transport_from_flag(transport);
  out.judge = judge();
  out.guard = guard_from(guard);
  out.comm_figures = comm_figures_from(comm_figures);
  out.placement = placement(choice);
  return out;
}

}  // namespace lockstep
