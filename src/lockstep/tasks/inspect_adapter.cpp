#include "lockstep/tasks/inspect_adapter.h"

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/key_map.h"
#include "lockstep/session/adapter_base.h"
#include "lockstep/session/model_folder.h"
#include "lockstep/state/adapter_folder.h"
#include "lockstep/tasks/tuner.h"

namespace lockstep {
namespace {

void add_match(Json& report, const AdapterFolder& folder, const ModelPlace& base) {
  const ModelFolder model(base);
  const KeyMap keys = KeyMap::match(model.model, open_weights(model.family, model.config));
  const AdapterMatch match = folder.match(model.model, naming_of_adapters(model.model, keys.dialect()));
  report["shape"] = match.shape;
  report["matches"] = describe_adapters(model.model, match.layout);
  report["whole"] = match.layout.saved.size();
  report["idle"] = match.idle.size();
}

}  // namespace

Json inspect_adapter(const std::filesystem::path& dir, const ModelPlace& model, bool verify) {
  Json report{{"folder", dir.string()}, {"problems", Json::array()}};
  const auto attempt = [&](const char* what, const auto& work) {
    try {
      work();
    } catch (Error& error) {
      error.add_frame(what);
      report["problems"].push_back(error.what());
    }
  };
  attempt("adapter", [&] {
    const AdapterFolder folder = AdapterFolder::open(dir);
    const LoraConfig& config = folder.config();
    report["kind"] = config.dora ? "DoRA" : "LoRA";
    report["rank"] = config.r;
    report["alpha"] = config.alpha;
    report["scale"] = config.scale_of("", config.r);
    report["tensors"] = folder.tensors().size();
    if (verify) attempt("hashes", [&] { folder.verify(); });
    attempt("base", [&] {
      const ModelPlace base = completed(model, dir);
      report["base"] = base.folder.string();
      add_match(report, folder, base);
    });
  });
  return report;
}

std::string adapter_text(const Json& report) {
  std::string out = fmt::format("{}: an adapter\n", report["folder"].get<std::string>());
  const auto line = [&](const char* name, const std::string& text) { out += fmt::format("  {:<8} {}\n", name, text); };
  if (report.contains("kind")) {
    line("kind", fmt::format("{}, rank {}, alpha {:g}, scale {:g}, {} tensors", report["kind"].get<std::string>(),
                             report["rank"].get<int64_t>(), report["alpha"].get<double>(),
                             report["scale"].get<double>(), report["tensors"].get<size_t>()));
  }
  if (report.contains("base")) line("base", report["base"].get<std::string>());
  if (report.contains("shape")) line("names", report["shape"].get<std::string>());
  if (report.contains("matches")) line("matches", report["matches"].get<std::string>());
  if (report.value("idle", size_t{0}) > 0) {
    line("idle", fmt::format("{} tensors of modules that nothing is computed with", report["idle"].get<size_t>()));
  }
  for (const auto& problem : report["problems"]) line("PROBLEM", problem.get<std::string>());
  return out;
}

}  // namespace lockstep
