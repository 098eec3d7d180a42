#include "lockstep/cli/run_flags.h"

#include <algorithm>
#include <cstdlib>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/component_flags.h"
#include "lockstep/cli/media_flags.h"

namespace lockstep {
namespace {

/// A flag's text as the JSON value it spells.
Json typed(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_boolean() || parsed.is_number() ? parsed : Json(text);
}

}  // namespace

ZeroStage RunFlags::zero() const { return deepspeed.empty() ? ZeroStage{3} : ZeroStage::from_flag(deepspeed); }

std::set<Component> RunFlags::without() const { return components_from("--no_build", no_build); }

bool RunFlags::offloads_optimizer() const {
  return placement.offloads("optimizer") ||
         (!deepspeed.empty() && DeepSpeedChoice::from_flag(deepspeed).offload_optimizer);
}

bool RunFlags::offloads_params() const {
  return placement.offloads("params") || (!deepspeed.empty() && DeepSpeedChoice::from_flag(deepspeed).offload_params);
}

std::optional<Dtype> RunFlags::dtype() const {
  if (torch_dtype.empty()) return std::nullopt;
  const Dtype dtype = dtype_from_flag(torch_dtype);
  if (dtype == Dtype::kBF16 || dtype == Dtype::kF16 || dtype == Dtype::kF32) return dtype;
  throw usage_error(fmt::format("--torch_dtype: expected bfloat16, float16 or float32, found {}", torch_dtype));
}

void add_run_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("--model,--model_id_or_path", flags.model, "checkpoint folder")->required()->group("Model");
  app.add_option("--torch_dtype,--dtype", flags.torch_dtype,
                 "bfloat16 | float16 | float32 (default: as config.json says)")
      ->group("Model");
  app.add_option("--no_build", flags.no_build,
                 "components that are not built: they hold no byte, rows that need them are refused, and a checkpoint "
                 "keeps their tensors as they are (vision)")
      ->group("Model");
  app.add_option("--deepspeed", flags.deepspeed,
                 "zero0 | zero1 | zero2 | zero3, zero2_offload | zero3_offload, or a DeepSpeed JSON (default: zero3)")
      ->group("Ranks");
  app.add_option("--nproc", flags.nproc, "local ranks to start (default: NPROC_PER_NODE, else one a GPU, else 1)")
      ->check(CLI::Range(0, 4096))
      ->group("Ranks");
  app.add_option("--transport", flags.transport, "auto | gloo | shm | nccl")->capture_default_str()->group("Ranks");
  app.add_option("--device", flags.device, "auto | cpu | cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--patience", flags.patience,
                 "seconds that ranks wait for one that is busy before the job is ended; by its phase too: "
                 "600,save=1800,data=60 (phases: start load data forward backward step save evaluate generate)")
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--soft_patience", flags.soft_patience, "seconds until a rank that others wait for is named")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Ranks");
  app.add_option(
         "--guard", flags.guard,
         "default | strict | off: strict compares every call before it starts (slow, one node); off: nobody watches, "
         "a rank that waits only has the transport's own time limit")
      ->check(CLI::IsMember({"default", "strict", "off"}))
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--max_restarts", flags.max_restarts,
                 "start the ranks again after a failure, from the last checkpoint, so many times")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--comm_figures", flags.comm_figures,
                 "kind | full | off: what the ranks' communication cost, told at the end: calls, bytes, seconds and "
                 "bandwidth of each kind of call, or of each label")
      ->check(CLI::IsMember({"kind", "full", "off"}))
      ->capture_default_str()
      ->group("Ranks");
  add_placement_flags(app, flags.placement);
}

JudgeOptions RunFlags::judge() const {
  JudgeOptions options{.soft_seconds = soft_patience};
  const auto seconds = [&](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value > 0)) {
      throw usage_error(fmt::format("--patience {}: expected seconds above 0, found \"{}\"", patience, text),
                        "for instance --patience 600 or --patience 600,save=1800");
    }
    return value;
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

int64_t RunFlags::data_patience_s() const {
  constexpr int64_t kAfterRollCall = 10;
  return static_cast<int64_t>(judge().hard_seconds[static_cast<size_t>(Phase::kData)]) + kAfterRollCall;
}

DatasetOptions RowFlags::dataset(const Env& env) const {
  return {.strict = strict, .root_image_dir = env.text("ROOT_IMAGE_DIR").value_or("")};
}

Json RowFlags::as_json() const {
  return {{"strict", strict},
          {"max_length", max_length},
          {"truncation_strategy", truncation_strategy},
          {"seed", seed},
          {"pixels",
           {media.shrink_to_pixels, media.min_pixels, media.max_pixels, media.video_min_pixels, media.video_max_pixels,
            media.video_total_pixels}},
          {"fps", media.fps}};
}

ProcessOptions RowFlags::process() const {
  ProcessOptions options{.max_length = max_length, .media = media};
  if (truncation_strategy == "right") options.truncation = Truncation::kRight;
  if (truncation_strategy == "left") options.truncation = Truncation::kLeft;
  return options;
}

void add_row_flags(CLI::App& app, RowFlags& flags) {
  app.add_option("--max_length", flags.max_length, "tokens of a row; 0: no limit")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group("Data");
  app.add_option("--truncation_strategy", flags.truncation_strategy,
                 "of longer rows: delete | right | left; images are never cut")
      ->check(CLI::IsMember({"delete", "right", "left"}))
      ->capture_default_str()
      ->group("Data");
  add_media_flags(app, flags.media);
  app.add_option("--strict", flags.strict, "stop at the first row that cannot be used, instead of skipping it")
      ->capture_default_str()
      ->group("Data");
  app.add_option("--seed", flags.seed, "of the data order and of sampling")->capture_default_str()->group("Data");
  app.add_option("--dataloader_num_workers", flags.num_workers, "threads that prepare rows; 0: none")
      ->check(CLI::Range(0, 256))
      ->capture_default_str()
      ->group("Data");
}

Json flags_as_json(const CLI::App& app) {
  Json json = Json::object();
  for (const auto* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help" || option->get_group().empty()) continue;
    const std::string& name = option->get_lnames()[0];
    const auto values = option->count() > 0 ? option->results() : std::vector<std::string>{};
    const bool list = option->get_items_expected_max() > 1;
    if (list) {
      json[name] = values;
    } else if (!values.empty()) {
      json[name] = typed(values.back());
    } else {
      json[name] = option->get_default_str().empty() ? Json(nullptr) : typed(option->get_default_str());
    }
  }
  return json;
}

}  // namespace lockstep
