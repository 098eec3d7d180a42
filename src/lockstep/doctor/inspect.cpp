#include "lockstep/doctor/inspect.h"

#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/model/weights.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/text/unheeded_ends.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

/// Runs a look; what it throws becomes a problem.
void look(Json& report, const char* what, const std::function<void()>& at) {
  try {
    at();
  } catch (const UserError& e) {
    report["problems"].push_back(fmt::format("{}: {}", what, e.what()));
  }
}

/// What a config asks for beyond its family and no code here does.
void name_unsupported(const HfConfig& config, Json& report) {
  const auto refuse = [&](const std::string& text) { report["problems"].push_back(text); };
  const HfConfig quantised = config.at("quantization_config");
  if (config.has("quantization_config") && quantised.text("quant_method", "bitsandbytes") != "bitsandbytes") {
    refuse(fmt::format("{}: quantization_config {}: such weights are not read; take the unquantised folder",
                       config.where(), quantised.text("quant_method", "")));
  }
  if (config.has("auto_map")) {
    report["notices"].push_back("config.json names code of its own (auto_map): it is not run, the family decides");
  }
}

Json parameters_of(const Model& model) {
  std::map<std::string, int64_t> counts;
  int64_t total = 0;
  for (const auto& block : model.blocks) {
    for (const auto& param : block->params()) {
      if (param.tied) continue;
      counts[std::string(component_name(block->component()))] += param.numel();
      total += param.numel();
    }
  }
  Json out = Json::object();
  for (const auto& [name, count] : counts) out[name] = count;
  for (const auto& source : model.unused) out["carried"] = out.value("carried", int64_t{0}) + numel_of(source.shape);
  out["total"] = total + out.value("carried", int64_t{0});
  return out;
}

void look_at_weights(const fs::path& dir, const Weights& weights, Json& report) {
  std::map<std::string, int64_t> dtypes;
  for (const auto& spec : weights.specs()) ++dtypes[dtype_name(spec.dtype)];
  for (const auto& [name, count] : dtypes) report["dtypes"][name] = count;
  for (const auto& file : weights.files()) {
    report["files"].push_back({{"name", file}, {"bytes", static_cast<int64_t>(fs::file_size(dir / file))}});
  }
  for (const auto& other : weights.borrowed_from()) report["borrowed_from"].push_back(other.string());
  report["tensors"] = weights.specs().size();
  report["weight_bytes"] = weights.total_bytes();
}

void look_at_model(const Model& model, const Weights& weights, Json& report) {
  report["parameters"] = parameters_of(model);
  report["vocab"] = model.dims.vocab;
  report["layers"] = model.dims.layers;
  report["max_positions"] = model.dims.max_positions;
  const bool tied = std::any_of(model.blocks.begin(), model.blocks.end(), [](const auto& block) {
    return std::any_of(block->params().begin(), block->params().end(), [](const ParamSpec& p) { return p.tied; });
  });
  report["tied_head"] = tied;
  const KeyMap keys = KeyMap::match(model, weights);
  const Unmatched rest = unmatched(model, weights, keys);
  report["dialect"] = keys.dialect();
  report["derived"] = rest.derived;
  for (const auto& notice : rest.notices) report["notices"].push_back(notice);
}

void look_at_text(const fs::path& dir, Json& report) {
  look(report, "tokenizer", [&] {
    const Tokenizer tokenizer = Tokenizer::load(dir);
    Json specials = Json::object();
    for (const char* role : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
      if (const auto token = tokenizer.special(role)) specials[role] = *token;
    }
    report["tokenizer"] = {{"tokens", tokenizer.vocab_size()}, {"special", specials}};
    if (std::string words = unheeded_ends(dir, tokenizer); !words.empty()) report["notices"].push_back(words);
    if (report.contains("vocab") && report["vocab"].get<int64_t>() < tokenizer.vocab_size()) {
      report["problems"].push_back(fmt::format("tokenizer: {} tokens, but the embedding has only {} rows",
                                               tokenizer.vocab_size(), report["vocab"].get<int64_t>()));
    }
  });
}

/// Behind the processor, which a family with a format of its own makes without one.
void look_at_template(const fs::path& dir, Json& report) {
  report["chat_template"] = false;
  look(report, "chat template", [&] {
    if (ChatTemplate::stands_in(dir)) {
      (void)ChatTemplate::load(dir);
      report["chat_template"] = true;
      return;
    }
    report["notices"].push_back(report["processor"] == true
                                    ? "no chat template in the folder: the family brings its own"
                                    : "no chat template: training and asking need one (chat_template.jinja, or "
                                      "\"chat_template\" in tokenizer_config.json)");
  });
}

std::string line(const std::string& name, const std::string& value) { return fmt::format("{:<14} {}\n", name, value); }

}  // namespace

Json inspect_checkpoint(const ModelPlace& place, const std::set<Component>& without, bool audio_output) {
  const fs::path& dir = place.folder;
  if (!fs::is_directory(dir)) {
    throw checkpoint_error(
        fmt::format("{}: expected the folder of a checkpoint, found {}", dir.string(), found_for_folder(dir)),
        fs::exists(dir) ? "name the folder that holds it: config.json stands beside the weights"
                        : "models are read from local folders: download it first");
  }
  Json report = {{"folder", dir.string()}, {"notices", Json::array()}, {"problems", Json::array()}};
  std::optional<HfConfig> config;
  std::optional<Weights> weights;
  const Family* family = nullptr;
  look(report, "config", [&] {
    config.emplace(load_config(place));
    for (const auto& notice : config->notices()) report["notices"].push_back(notice);
    report["architectures"] = config->texts("architectures");
    name_unsupported(*config, report);
    family = &family_of(*config);
    report["family"] = family->name;
  });
  look(report, "weights", [&] {
    weights.emplace(family != nullptr ? open_weights(*family, *config) : Weights::open(dir));
    look_at_weights(dir, *weights, report);
  });
  if (family != nullptr && weights) {
    look(report, "model", [&] {
      Model model = family->build(*config);
      leave_out(model, without);
      if (!audio_output) leave_out_speech(model);
      look_at_model(model, *weights, report);
    });
  }
  look_at_text(dir, report);
  report["processor"] = false;
  if (family != nullptr && family->processor) {
    look(report, "processor", [&] {
      (void)family->processor(place);
      report["processor"] = true;
    });
  }
  look_at_template(dir, report);
  return report;
}

std::string inspect_text(const Json& report) {
  std::string out = line("folder", report["folder"].get<std::string>());
  const auto put = [&](const char* key, const char* name) {
    if (!report.contains(key)) return;
    const Json& value = report[key];
    out += line(name, value.is_string()    ? value.get<std::string>()
                      : value.is_boolean() ? (value.get<bool>() ? "yes" : "no")
                                           : value.dump());
  };
  put("family", "family");
  put("architectures", "architectures");
  put("dialect", "names");
  put("dtypes", "dtypes");
  if (report.contains("parameters")) {
    std::vector<std::string> parts;
    for (const auto& [name, count] : report["parameters"].items()) {
      parts.push_back(fmt::format("{} {}", name, format_count(count.get<int64_t>())));
    }
    out += line("parameters", join(parts, ", "));
  }
  put("tied_head", "tied head");
  if (report.contains("files")) {
    for (const auto& file : report["files"]) {
      out += line("file",
                  fmt::format("{} {}", file["name"].get<std::string>(), format_bytes(file["bytes"].get<int64_t>())));
    }
    for (const auto& other : report.value("borrowed_from", Json::array()))
      out += line("tower", other.get<std::string>());
    out += line("weights", fmt::format("{} tensors, {}", report["tensors"].get<int64_t>(),
                                       format_bytes(report["weight_bytes"].get<int64_t>())));
  }
  put("vocab", "vocabulary");
  put("tokenizer", "tokenizer");
  put("chat_template", "chat template");
  put("processor", "processor");
  for (const auto& notice : report["notices"]) out += line("notice", notice.get<std::string>());
  for (const auto& problem : report["problems"]) out += line("PROBLEM", problem.get<std::string>());
  if (report["problems"].empty()) out += line("verdict", "every part was read and fits");
  return out;
}

}  // namespace lockstep
